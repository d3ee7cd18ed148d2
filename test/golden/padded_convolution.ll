; grid 12
; tile 3 of loop 3 x 4 of loop 0 by 2 x 16 lanes of loop 1, panel packed
@constant0 = private constant float 0x0000000000000000
define internal void @convolution.body(ptr noalias %data0, ptr noalias %data1, ptr noalias %data2, i64 %begin, i64 %end) #0 {
entry:
  %acc0 = alloca [24 x <16 x float>], align 64
  %scratch0 = alloca [2304 x float], align 64
  br label %before1
before1:
  br label %loop2
loop2:
  %i4 = phi i64 [ 0, %before1 ], [ %i4.next, %next3 ]
  %v5 = mul i64 %i4, 288
  %v6 = mul i64 %i4, 9
  br label %before7
before7:
  br label %loop8
loop8:
  %i10 = phi i64 [ 0, %before7 ], [ %i10.next, %next9 ]
  %v11 = mul i64 %i10, 96
  %v12 = add i64 %v5, %v11
  %v13 = mul i64 %i10, 3
  %v14 = add i64 %v6, %v13
  br label %before15
before15:
  br label %loop16
loop16:
  %i18 = phi i64 [ 0, %before15 ], [ %i18.next, %next17 ]
  %v19 = mul i64 %i18, 32
  %v20 = add i64 %v12, %v19
  %v21 = add i64 %v14, %i18
  br label %before22
before22:
  br label %loop23
loop23:
  %i25 = phi i64 [ 0, %before22 ], [ %i25.next, %next24 ]
  %v26 = mul i64 %i25, 16
  %v27 = add i64 %v20, %v26
  %v28 = getelementptr float, ptr %scratch0, i64 %v27
  %v29 = mul i64 %i25, 1152
  %v30 = add i64 %v21, %v29
  %v31 = getelementptr float, ptr %data2, i64 %v30
  %v32 = getelementptr float, ptr %v31, <16 x i32> <i32 0, i32 72, i32 144, i32 216, i32 288, i32 360, i32 432, i32 504, i32 576, i32 648, i32 720, i32 792, i32 864, i32 936, i32 1008, i32 1080>
  %v33 = call <16 x float> @llvm.masked.gather.v16f32.v16p0(<16 x ptr> align 4 %v32, <16 x i1> splat (i1 true), <16 x float> splat (float 0x0000000000000000))
  store <16 x float> %v33, ptr %v28, align 4
  br label %next24
next24:
  %i25.next = add nuw nsw i64 %i25, 1
  %v34 = icmp slt i64 %i25.next, 2
  br i1 %v34, label %loop23, label %done25, !llvm.loop !3
done25:
  br label %next17
next17:
  %i18.next = add nuw nsw i64 %i18, 1
  %v35 = icmp slt i64 %i18.next, 3
  br i1 %v35, label %loop16, label %done18, !llvm.loop !4
done18:
  br label %next9
next9:
  %i10.next = add nuw nsw i64 %i10, 1
  %v36 = icmp slt i64 %i10.next, 3
  br i1 %v36, label %loop8, label %done10, !llvm.loop !5
done10:
  br label %next3
next3:
  %i4.next = add nuw nsw i64 %i4, 1
  %v37 = icmp slt i64 %i4.next, 8
  br i1 %v37, label %loop2, label %done4, !llvm.loop !6
done4:
  %v42 = icmp slt i64 %begin, %end
  br i1 %v42, label %before38, label %done41
before38:
  br label %loop39
loop39:
  %item42 = phi i64 [ %begin, %before38 ], [ %item42.next, %next40 ]
  %v43 = urem i64 %item42, 3
  %v44 = mul i64 %v43, 3
  %v45 = udiv i64 %item42, 3
  %v46 = mul i64 %v45, 1152
  %v47 = add i64 %v44, %v46
  br label %before48
before48:
  br label %loop49
loop49:
  %t51 = phi i64 [ 0, %before48 ], [ %t51.next, %next50 ]
  %v52 = mul i64 %t51, 3
  br label %before53
before53:
  br label %loop54
loop54:
  %t56 = phi i64 [ 0, %before53 ], [ %t56.next, %next55 ]
  %v57 = add i64 %v52, %t56
  %v58 = mul i64 %v57, 2
  br label %before59
before59:
  br label %loop60
loop60:
  %t62 = phi i64 [ 0, %before59 ], [ %t62.next, %next61 ]
  %v63 = add i64 %v58, %t62
  %v64 = getelementptr <16 x float>, ptr %acc0, i64 %v63
  store <16 x float> splat (float 0x0000000000000000), ptr %v64, align 64
  br label %next61
next61:
  %t62.next = add nuw nsw i64 %t62, 1
  %v65 = icmp slt i64 %t62.next, 2
  br i1 %v65, label %loop60, label %done62, !llvm.loop !7
done62:
  br label %next55
next55:
  %t56.next = add nuw nsw i64 %t56, 1
  %v66 = icmp slt i64 %t56.next, 3
  br i1 %v66, label %loop54, label %done56, !llvm.loop !8
done56:
  br label %next50
next50:
  %t51.next = add nuw nsw i64 %t51, 1
  %v67 = icmp slt i64 %t51.next, 4
  br i1 %v67, label %loop49, label %done51, !llvm.loop !9
done51:
  %v68 = mul i64 %v45, 288
  %v69 = add i64 %v44, %v68
  br label %before70
before70:
  br label %loop71
loop71:
  %k73 = phi i64 [ 0, %before70 ], [ %k73.next, %next72 ]
  %v74 = mul i64 %k73, 9
  %v75 = add i64 %v69, %v74
  %v76 = mul i64 %k73, 288
  br label %before77
before77:
  br label %loop78
loop78:
  %k80 = phi i64 [ 0, %before77 ], [ %k80.next, %next79 ]
  %v81 = mul i64 %k80, 3
  %v82 = add i64 %v75, %v81
  %v83 = add i64 %v43, %k80
  %v84 = add i64 %v83, -1
  %v85 = icmp slt i64 %v84, 0
  %v86 = icmp ne i1 %v85, true
  %v87 = icmp slt i64 %v84, 3
  %v88 = and i1 %v86, %v87
  %v89 = mul i64 %k80, 96
  %v90 = add i64 %v76, %v89
  br label %before91
before91:
  br label %loop92
loop92:
  %k94 = phi i64 [ 0, %before91 ], [ %k94.next, %next93 ]
  %v95 = add i64 %v82, %k94
  %v96 = mul i64 %k94, 32
  %v97 = add i64 %v90, %v96
  br label %before98
before98:
  br label %loop99
loop99:
  %t101 = phi i64 [ 0, %before98 ], [ %t101.next, %next100 ]
  %v102 = mul i64 %t101, 3
  %v103 = mul i64 %t101, 72
  %v104 = add i64 %v95, %v103
  br label %before105
before105:
  br label %loop106
loop106:
  %t108 = phi i64 [ 0, %before105 ], [ %t108.next, %next107 ]
  %v109 = add i64 %v102, %t108
  %v110 = mul i64 %v109, 2
  %v111 = add i64 %v104, %t108
  %v112 = add i64 %v111, -4
  %v113 = add i64 %k94, %t108
  %v114 = add i64 %v113, -1
  %v115 = icmp slt i64 %v114, 0
  %v116 = icmp ne i1 %v115, true
  %v117 = and i1 %v88, %v116
  %v118 = icmp slt i64 %v114, 3
  %v119 = and i1 %v117, %v118
  %v120 = getelementptr float, ptr %data1, i64 %v112
  %v121 = select i1 %v119, ptr %v120, ptr @constant0
  %v122 = load float, ptr %v121, align 4
  %v123 = insertelement <16 x float> poison, float %v122, i32 0
  %v124 = shufflevector <16 x float> %v123, <16 x float> poison, <16 x i32> zeroinitializer
  br label %before125
before125:
  br label %loop126
loop126:
  %t128 = phi i64 [ 0, %before125 ], [ %t128.next, %next127 ]
  %v129 = add i64 %v110, %t128
  %v130 = getelementptr <16 x float>, ptr %acc0, i64 %v129
  %v131 = load <16 x float>, ptr %v130, align 64
  %v132 = mul i64 %t128, 16
  %v133 = add i64 %v97, %v132
  %v134 = getelementptr float, ptr %scratch0, i64 %v133
  %v135 = load <16 x float>, ptr %v134, align 4
  %v136 = fmul contract <16 x float> %v124, %v135
  %v137 = fadd reassoc nsz contract <16 x float> %v131, %v136
  store <16 x float> %v137, ptr %v130, align 64
  br label %next127
next127:
  %t128.next = add nuw nsw i64 %t128, 1
  %v138 = icmp slt i64 %t128.next, 2
  br i1 %v138, label %loop126, label %done128, !llvm.loop !10
done128:
  br label %next107
next107:
  %t108.next = add nuw nsw i64 %t108, 1
  %v139 = icmp slt i64 %t108.next, 3
  br i1 %v139, label %loop106, label %done108, !llvm.loop !11
done108:
  br label %next100
next100:
  %t101.next = add nuw nsw i64 %t101, 1
  %v140 = icmp slt i64 %t101.next, 4
  br i1 %v140, label %loop99, label %done101, !llvm.loop !12
done101:
  br label %next93
next93:
  %k94.next = add nuw nsw i64 %k94, 1
  %v141 = icmp slt i64 %k94.next, 3
  br i1 %v141, label %loop92, label %done94, !llvm.loop !13
done94:
  br label %next79
next79:
  %k80.next = add nuw nsw i64 %k80, 1
  %v142 = icmp slt i64 %k80.next, 3
  br i1 %v142, label %loop78, label %done80, !llvm.loop !14
done80:
  br label %next72
next72:
  %k73.next = add nuw nsw i64 %k73, 1
  %v143 = icmp slt i64 %k73.next, 8
  br i1 %v143, label %loop71, label %done73, !llvm.loop !15
done73:
  br label %before144
before144:
  br label %loop145
loop145:
  %t147 = phi i64 [ 0, %before144 ], [ %t147.next, %next146 ]
  %v148 = mul i64 %t147, 288
  %v149 = add i64 %v47, %v148
  %v150 = mul i64 %t147, 3
  br label %before151
before151:
  br label %loop152
loop152:
  %t154 = phi i64 [ 0, %before151 ], [ %t154.next, %next153 ]
  %v155 = add i64 %v149, %t154
  %v156 = add i64 %v150, %t154
  %v157 = mul i64 %v156, 2
  br label %before158
before158:
  br label %loop159
loop159:
  %t161 = phi i64 [ 0, %before158 ], [ %t161.next, %next160 ]
  %v162 = mul i64 %t161, 144
  %v163 = add i64 %v155, %v162
  %v164 = getelementptr float, ptr %data0, i64 %v163
  %v165 = getelementptr float, ptr %v164, <16 x i32> <i32 0, i32 9, i32 18, i32 27, i32 36, i32 45, i32 54, i32 63, i32 72, i32 81, i32 90, i32 99, i32 108, i32 117, i32 126, i32 135>
  %v166 = add i64 %v157, %t161
  %v167 = getelementptr <16 x float>, ptr %acc0, i64 %v166
  %v168 = load <16 x float>, ptr %v167, align 64
  call void @llvm.masked.scatter.v16f32.v16p0(<16 x float> %v168, <16 x ptr> align 4 %v165, <16 x i1> splat (i1 true))
  br label %next160
next160:
  %t161.next = add nuw nsw i64 %t161, 1
  %v169 = icmp slt i64 %t161.next, 2
  br i1 %v169, label %loop159, label %done161, !llvm.loop !16
done161:
  br label %next153
next153:
  %t154.next = add nuw nsw i64 %t154, 1
  %v170 = icmp slt i64 %t154.next, 3
  br i1 %v170, label %loop152, label %done154, !llvm.loop !17
done154:
  br label %next146
next146:
  %t147.next = add nuw nsw i64 %t147, 1
  %v171 = icmp slt i64 %t147.next, 4
  br i1 %v171, label %loop145, label %done147, !llvm.loop !18
done147:
  br label %next40
next40:
  %item42.next = add nuw nsw i64 %item42, 1
  %v172 = icmp slt i64 %item42.next, %end
  br i1 %v172, label %loop39, label %done41, !llvm.loop !19
done41:
  ret void
}
define void @convolution(ptr %buffers, ptr %values, i64 %begin, i64 %end) #1 {
  %data0.at = getelementptr ptr, ptr %buffers, i64 0
  %data0 = load ptr, ptr %data0.at
  %data1.at = getelementptr ptr, ptr %buffers, i64 1
  %data1 = load ptr, ptr %data1.at
  %data2.at = getelementptr ptr, ptr %buffers, i64 2
  %data2 = load ptr, ptr %data2.at
  call void @convolution.body(ptr %data0, ptr %data1, ptr %data2, i64 %begin, i64 %end)
  ret void
}
declare <16 x float> @llvm.masked.gather.v16f32.v16p0(<16 x ptr>, <16 x i1>, <16 x float>)
declare void @llvm.masked.scatter.v16f32.v16p0(<16 x float>, <16 x ptr>, <16 x i1>)
attributes #0 = { nounwind noinline "prefer-vector-width"="512" }
attributes #1 = { nounwind }
!0 = !{!"llvm.loop.unroll.full"}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = distinct !{!3, !2}
!4 = distinct !{!4, !1, !2}
!5 = distinct !{!5, !1, !2}
!6 = distinct !{!6, !1, !2}
!7 = distinct !{!7, !0, !2}
!8 = distinct !{!8, !0, !2}
!9 = distinct !{!9, !0, !2}
!10 = distinct !{!10, !0, !2}
!11 = distinct !{!11, !0, !2}
!12 = distinct !{!12, !0, !2}
!13 = distinct !{!13, !2}
!14 = distinct !{!14, !1, !2}
!15 = distinct !{!15, !1, !2}
!16 = distinct !{!16, !0, !2}
!17 = distinct !{!17, !0, !2}
!18 = distinct !{!18, !0, !2}
!19 = distinct !{!19, !1, !2}
