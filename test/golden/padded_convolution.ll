; grid 16
; tile 2 of loop 3 x 4 of loop 2 by 2 x 16 lanes of loop 1, panel packed
@constant0 = private constant float 0x0000000000000000
define internal void @convolution.body(ptr noalias %data0, ptr noalias %data1, ptr noalias %data2, i64 %begin, i64 %end) #0 {
entry:
  %acc0 = alloca [16 x <16 x float>], align 64
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
  %v43 = mul i64 %item42, 2048
  %v44 = mul i64 %item42, 512
  br label %before45
before45:
  br label %loop46
loop46:
  %i48 = phi i64 [ 0, %before45 ], [ %i48.next, %next47 ]
  %v49 = mul i64 %i48, 32
  %v50 = add i64 %v43, %v49
  %v51 = add i64 %v44, %v49
  %v52 = mul i64 %i48, 4
  br label %before53
before53:
  br label %loop54
loop54:
  %i56 = phi i64 [ 0, %before53 ], [ %i56.next, %next55 ]
  %v57 = mul i64 %i56, 2
  %v58 = add i64 %v50, %v57
  br label %before59
before59:
  br label %loop60
loop60:
  %t62 = phi i64 [ 0, %before59 ], [ %t62.next, %next61 ]
  %v63 = mul i64 %t62, 2
  br label %before64
before64:
  br label %loop65
loop65:
  %t67 = phi i64 [ 0, %before64 ], [ %t67.next, %next66 ]
  %v68 = add i64 %v63, %t67
  %v69 = mul i64 %v68, 2
  br label %before70
before70:
  br label %loop71
loop71:
  %t73 = phi i64 [ 0, %before70 ], [ %t73.next, %next72 ]
  %v74 = add i64 %v69, %t73
  %v75 = getelementptr <16 x float>, ptr %acc0, i64 %v74
  store <16 x float> splat (float 0x0000000000000000), ptr %v75, align 64
  br label %next72
next72:
  %t73.next = add nuw nsw i64 %t73, 1
  %v76 = icmp slt i64 %t73.next, 2
  br i1 %v76, label %loop71, label %done73, !llvm.loop !7
done73:
  br label %next66
next66:
  %t67.next = add nuw nsw i64 %t67, 1
  %v77 = icmp slt i64 %t67.next, 2
  br i1 %v77, label %loop65, label %done67, !llvm.loop !8
done67:
  br label %next61
next61:
  %t62.next = add nuw nsw i64 %t62, 1
  %v78 = icmp slt i64 %t62.next, 4
  br i1 %v78, label %loop60, label %done62, !llvm.loop !9
done62:
  %v79 = add i64 %v51, %v57
  br label %before80
before80:
  br label %loop81
loop81:
  %k83 = phi i64 [ 0, %before80 ], [ %k83.next, %next82 ]
  %v84 = mul i64 %k83, 64
  %v85 = add i64 %v79, %v84
  %v86 = mul i64 %k83, 288
  br label %before87
before87:
  br label %loop88
loop88:
  %k90 = phi i64 [ 0, %before87 ], [ %k90.next, %next89 ]
  %v91 = mul i64 %k90, 8
  %v92 = add i64 %v85, %v91
  %v93 = add i64 %v52, %k90
  %v94 = mul i64 %k90, 96
  %v95 = add i64 %v86, %v94
  br label %before96
before96:
  br label %loop97
loop97:
  %k99 = phi i64 [ 0, %before96 ], [ %k99.next, %next98 ]
  %v100 = add i64 %v92, %k99
  %v101 = add i64 %v57, %k99
  %v102 = mul i64 %k99, 32
  %v103 = add i64 %v95, %v102
  br label %before104
before104:
  br label %loop105
loop105:
  %t107 = phi i64 [ 0, %before104 ], [ %t107.next, %next106 ]
  %v108 = mul i64 %t107, 2
  %v109 = mul i64 %t107, 8
  %v110 = add i64 %v100, %v109
  %v111 = add i64 %v93, %t107
  %v112 = add i64 %v111, -1
  %v113 = icmp slt i64 %v112, 0
  %v114 = icmp ne i1 %v113, true
  %v115 = icmp slt i64 %v112, 8
  %v116 = and i1 %v114, %v115
  br label %before117
before117:
  br label %loop118
loop118:
  %t120 = phi i64 [ 0, %before117 ], [ %t120.next, %next119 ]
  %v121 = add i64 %v108, %t120
  %v122 = mul i64 %v121, 2
  %v123 = add i64 %v110, %t120
  %v124 = add i64 %v123, -9
  %v125 = add i64 %v101, %t120
  %v126 = add i64 %v125, -1
  %v127 = icmp slt i64 %v126, 0
  %v128 = icmp ne i1 %v127, true
  %v129 = and i1 %v116, %v128
  %v130 = icmp slt i64 %v126, 8
  %v131 = and i1 %v129, %v130
  %v132 = getelementptr float, ptr %data1, i64 %v124
  %v133 = select i1 %v131, ptr %v132, ptr @constant0
  %v134 = load float, ptr %v133, align 4
  %v135 = insertelement <16 x float> poison, float %v134, i32 0
  %v136 = shufflevector <16 x float> %v135, <16 x float> poison, <16 x i32> zeroinitializer
  br label %before137
before137:
  br label %loop138
loop138:
  %t140 = phi i64 [ 0, %before137 ], [ %t140.next, %next139 ]
  %v141 = add i64 %v122, %t140
  %v142 = getelementptr <16 x float>, ptr %acc0, i64 %v141
  %v143 = load <16 x float>, ptr %v142, align 64
  %v144 = mul i64 %t140, 16
  %v145 = add i64 %v103, %v144
  %v146 = getelementptr float, ptr %scratch0, i64 %v145
  %v147 = load <16 x float>, ptr %v146, align 4
  %v148 = fmul contract <16 x float> %v136, %v147
  %v149 = fadd reassoc nsz contract <16 x float> %v143, %v148
  store <16 x float> %v149, ptr %v142, align 64
  br label %next139
next139:
  %t140.next = add nuw nsw i64 %t140, 1
  %v150 = icmp slt i64 %t140.next, 2
  br i1 %v150, label %loop138, label %done140, !llvm.loop !10
done140:
  br label %next119
next119:
  %t120.next = add nuw nsw i64 %t120, 1
  %v151 = icmp slt i64 %t120.next, 2
  br i1 %v151, label %loop118, label %done120, !llvm.loop !11
done120:
  br label %next106
next106:
  %t107.next = add nuw nsw i64 %t107, 1
  %v152 = icmp slt i64 %t107.next, 4
  br i1 %v152, label %loop105, label %done107, !llvm.loop !12
done107:
  br label %next98
next98:
  %k99.next = add nuw nsw i64 %k99, 1
  %v153 = icmp slt i64 %k99.next, 3
  br i1 %v153, label %loop97, label %done99, !llvm.loop !13
done99:
  br label %next89
next89:
  %k90.next = add nuw nsw i64 %k90, 1
  %v154 = icmp slt i64 %k90.next, 3
  br i1 %v154, label %loop88, label %done90, !llvm.loop !14
done90:
  br label %next82
next82:
  %k83.next = add nuw nsw i64 %k83, 1
  %v155 = icmp slt i64 %k83.next, 8
  br i1 %v155, label %loop81, label %done83, !llvm.loop !15
done83:
  br label %before156
before156:
  br label %loop157
loop157:
  %t159 = phi i64 [ 0, %before156 ], [ %t159.next, %next158 ]
  %v160 = mul i64 %t159, 8
  %v161 = add i64 %v58, %v160
  %v162 = mul i64 %t159, 2
  br label %before163
before163:
  br label %loop164
loop164:
  %t166 = phi i64 [ 0, %before163 ], [ %t166.next, %next165 ]
  %v167 = add i64 %v161, %t166
  %v168 = add i64 %v162, %t166
  %v169 = mul i64 %v168, 2
  br label %before170
before170:
  br label %loop171
loop171:
  %t173 = phi i64 [ 0, %before170 ], [ %t173.next, %next172 ]
  %v174 = mul i64 %t173, 1024
  %v175 = add i64 %v167, %v174
  %v176 = getelementptr float, ptr %data0, i64 %v175
  %v177 = getelementptr float, ptr %v176, <16 x i32> <i32 0, i32 64, i32 128, i32 192, i32 256, i32 320, i32 384, i32 448, i32 512, i32 576, i32 640, i32 704, i32 768, i32 832, i32 896, i32 960>
  %v178 = add i64 %v169, %t173
  %v179 = getelementptr <16 x float>, ptr %acc0, i64 %v178
  %v180 = load <16 x float>, ptr %v179, align 64
  call void @llvm.masked.scatter.v16f32.v16p0(<16 x float> %v180, <16 x ptr> align 4 %v177, <16 x i1> splat (i1 true))
  br label %next172
next172:
  %t173.next = add nuw nsw i64 %t173, 1
  %v181 = icmp slt i64 %t173.next, 2
  br i1 %v181, label %loop171, label %done173, !llvm.loop !16
done173:
  br label %next165
next165:
  %t166.next = add nuw nsw i64 %t166, 1
  %v182 = icmp slt i64 %t166.next, 2
  br i1 %v182, label %loop164, label %done166, !llvm.loop !17
done166:
  br label %next158
next158:
  %t159.next = add nuw nsw i64 %t159, 1
  %v183 = icmp slt i64 %t159.next, 4
  br i1 %v183, label %loop157, label %done159, !llvm.loop !18
done159:
  br label %next55
next55:
  %i56.next = add nuw nsw i64 %i56, 1
  %v184 = icmp slt i64 %i56.next, 4
  br i1 %v184, label %loop54, label %done56, !llvm.loop !19
done56:
  br label %next47
next47:
  %i48.next = add nuw nsw i64 %i48, 1
  %v185 = icmp slt i64 %i48.next, 2
  br i1 %v185, label %loop46, label %done48, !llvm.loop !20
done48:
  br label %next40
next40:
  %item42.next = add nuw nsw i64 %item42, 1
  %v186 = icmp slt i64 %item42.next, %end
  br i1 %v186, label %loop39, label %done41, !llvm.loop !21
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
!20 = distinct !{!20, !1, !2}
!21 = distinct !{!21, !1, !2}
