; grid 16
; tile 2 of loop 3 x 4 of loop 2 by 2 x 16 lanes of loop 1, staged
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
  %v12 = mul i64 %i10, 3
  %v13 = add i64 %v6, %v12
  br label %before14
before14:
  br label %loop15
loop15:
  %i17 = phi i64 [ 0, %before14 ], [ %i17.next, %next16 ]
  %v18 = mul i64 %i17, 32
  %v19 = add i64 %v13, %i17
  br label %before20
before20:
  br label %loop21
loop21:
  %i23 = phi i64 [ 0, %before20 ], [ %i23.next, %next22 ]
  %v24 = mul i64 %i23, 16
  %v25 = mul i64 %i23, 1152
  %v26 = add i64 %v19, %v25
  br label %before27
before27:
  br label %loop28
loop28:
  %i30 = phi i64 [ 0, %before27 ], [ %i30.next, %next29 ]
  %v31 = add i64 %v24, %i30
  %v32 = add i64 %v18, %v31
  %v33 = add i64 %v11, %v32
  %v34 = add i64 %v5, %v33
  %v35 = getelementptr float, ptr %scratch0, i64 %v34
  %v36 = mul i64 %i30, 72
  %v37 = add i64 %v26, %v36
  %v38 = getelementptr float, ptr %data2, i64 %v37
  %v39 = load float, ptr %v38, align 4
  store float %v39, ptr %v35, align 4
  br label %next29
next29:
  %i30.next = add nuw nsw i64 %i30, 1
  %v40 = icmp slt i64 %i30.next, 16
  br i1 %v40, label %loop28, label %done30, !llvm.loop !3
done30:
  br label %next22
next22:
  %i23.next = add nuw nsw i64 %i23, 1
  %v41 = icmp slt i64 %i23.next, 2
  br i1 %v41, label %loop21, label %done23, !llvm.loop !4
done23:
  br label %next16
next16:
  %i17.next = add nuw nsw i64 %i17, 1
  %v42 = icmp slt i64 %i17.next, 3
  br i1 %v42, label %loop15, label %done17, !llvm.loop !5
done17:
  br label %next9
next9:
  %i10.next = add nuw nsw i64 %i10, 1
  %v43 = icmp slt i64 %i10.next, 3
  br i1 %v43, label %loop8, label %done10, !llvm.loop !6
done10:
  br label %next3
next3:
  %i4.next = add nuw nsw i64 %i4, 1
  %v44 = icmp slt i64 %i4.next, 8
  br i1 %v44, label %loop2, label %done4, !llvm.loop !7
done4:
  %v49 = icmp slt i64 %begin, %end
  br i1 %v49, label %before45, label %done48
before45:
  br label %loop46
loop46:
  %item49 = phi i64 [ %begin, %before45 ], [ %item49.next, %next47 ]
  %v50 = mul i64 %item49, 2048
  %v51 = mul i64 %item49, 512
  br label %before52
before52:
  br label %loop53
loop53:
  %i55 = phi i64 [ 0, %before52 ], [ %i55.next, %next54 ]
  %v56 = mul i64 %i55, 32
  %v57 = add i64 %v50, %v56
  %v58 = add i64 %v51, %v56
  %v59 = mul i64 %i55, 4
  br label %before60
before60:
  br label %loop61
loop61:
  %i63 = phi i64 [ 0, %before60 ], [ %i63.next, %next62 ]
  %v64 = mul i64 %i63, 2
  %v65 = add i64 %v57, %v64
  br label %before66
before66:
  br label %loop67
loop67:
  %t69 = phi i64 [ 0, %before66 ], [ %t69.next, %next68 ]
  %v70 = mul i64 %t69, 2
  br label %before71
before71:
  br label %loop72
loop72:
  %t74 = phi i64 [ 0, %before71 ], [ %t74.next, %next73 ]
  %v75 = add i64 %v70, %t74
  %v76 = mul i64 %v75, 2
  br label %before77
before77:
  br label %loop78
loop78:
  %t80 = phi i64 [ 0, %before77 ], [ %t80.next, %next79 ]
  %v81 = add i64 %v76, %t80
  %v82 = getelementptr <16 x float>, ptr %acc0, i64 %v81
  store <16 x float> splat (float 0x0000000000000000), ptr %v82, align 64
  br label %next79
next79:
  %t80.next = add nuw nsw i64 %t80, 1
  %v83 = icmp slt i64 %t80.next, 2
  br i1 %v83, label %loop78, label %done80, !llvm.loop !8
done80:
  br label %next73
next73:
  %t74.next = add nuw nsw i64 %t74, 1
  %v84 = icmp slt i64 %t74.next, 2
  br i1 %v84, label %loop72, label %done74, !llvm.loop !9
done74:
  br label %next68
next68:
  %t69.next = add nuw nsw i64 %t69, 1
  %v85 = icmp slt i64 %t69.next, 4
  br i1 %v85, label %loop67, label %done69, !llvm.loop !10
done69:
  %v86 = add i64 %v58, %v64
  br label %before87
before87:
  br label %loop88
loop88:
  %k90 = phi i64 [ 0, %before87 ], [ %k90.next, %next89 ]
  %v91 = mul i64 %k90, 64
  %v92 = add i64 %v86, %v91
  %v93 = mul i64 %k90, 288
  br label %before94
before94:
  br label %loop95
loop95:
  %k97 = phi i64 [ 0, %before94 ], [ %k97.next, %next96 ]
  %v98 = mul i64 %k97, 8
  %v99 = add i64 %v92, %v98
  %v100 = add i64 %v59, %k97
  %v101 = mul i64 %k97, 96
  %v102 = add i64 %v93, %v101
  br label %before103
before103:
  br label %loop104
loop104:
  %k106 = phi i64 [ 0, %before103 ], [ %k106.next, %next105 ]
  %v107 = add i64 %v99, %k106
  %v108 = add i64 %v64, %k106
  %v109 = mul i64 %k106, 32
  %v110 = add i64 %v102, %v109
  br label %before111
before111:
  br label %loop112
loop112:
  %t114 = phi i64 [ 0, %before111 ], [ %t114.next, %next113 ]
  %v115 = mul i64 %t114, 2
  %v116 = mul i64 %t114, 8
  %v117 = add i64 %v107, %v116
  %v118 = add i64 %v100, %t114
  %v119 = add i64 %v118, -1
  %v120 = icmp slt i64 %v119, 0
  %v121 = icmp ne i1 %v120, true
  %v122 = icmp slt i64 %v119, 8
  %v123 = and i1 %v121, %v122
  br label %before124
before124:
  br label %loop125
loop125:
  %t127 = phi i64 [ 0, %before124 ], [ %t127.next, %next126 ]
  %v128 = add i64 %v115, %t127
  %v129 = mul i64 %v128, 2
  %v130 = add i64 %v117, %t127
  %v131 = add i64 %v130, -9
  %v132 = add i64 %v108, %t127
  %v133 = add i64 %v132, -1
  %v134 = icmp slt i64 %v133, 0
  %v135 = icmp ne i1 %v134, true
  %v136 = and i1 %v123, %v135
  %v137 = icmp slt i64 %v133, 8
  %v138 = and i1 %v136, %v137
  %v139 = getelementptr float, ptr %data1, i64 %v131
  %v140 = select i1 %v138, ptr %v139, ptr @constant0
  %v141 = load float, ptr %v140, align 4
  %v142 = insertelement <16 x float> poison, float %v141, i32 0
  %v143 = shufflevector <16 x float> %v142, <16 x float> poison, <16 x i32> zeroinitializer
  br label %before144
before144:
  br label %loop145
loop145:
  %t147 = phi i64 [ 0, %before144 ], [ %t147.next, %next146 ]
  %v148 = add i64 %v129, %t147
  %v149 = getelementptr <16 x float>, ptr %acc0, i64 %v148
  %v150 = load <16 x float>, ptr %v149, align 64
  %v151 = mul i64 %t147, 16
  %v152 = add i64 %v110, %v151
  %v153 = getelementptr float, ptr %scratch0, i64 %v152
  %v154 = load <16 x float>, ptr %v153, align 4
  %v155 = fmul nsz contract <16 x float> %v143, %v154
  %v156 = fadd reassoc nsz contract <16 x float> %v150, %v155
  store <16 x float> %v156, ptr %v149, align 64
  br label %next146
next146:
  %t147.next = add nuw nsw i64 %t147, 1
  %v157 = icmp slt i64 %t147.next, 2
  br i1 %v157, label %loop145, label %done147, !llvm.loop !11
done147:
  br label %next126
next126:
  %t127.next = add nuw nsw i64 %t127, 1
  %v158 = icmp slt i64 %t127.next, 2
  br i1 %v158, label %loop125, label %done127, !llvm.loop !12
done127:
  br label %next113
next113:
  %t114.next = add nuw nsw i64 %t114, 1
  %v159 = icmp slt i64 %t114.next, 4
  br i1 %v159, label %loop112, label %done114, !llvm.loop !13
done114:
  br label %next105
next105:
  %k106.next = add nuw nsw i64 %k106, 1
  %v160 = icmp slt i64 %k106.next, 3
  br i1 %v160, label %loop104, label %done106, !llvm.loop !14
done106:
  br label %next96
next96:
  %k97.next = add nuw nsw i64 %k97, 1
  %v161 = icmp slt i64 %k97.next, 3
  br i1 %v161, label %loop95, label %done97, !llvm.loop !15
done97:
  br label %next89
next89:
  %k90.next = add nuw nsw i64 %k90, 1
  %v162 = icmp slt i64 %k90.next, 8
  br i1 %v162, label %loop88, label %done90, !llvm.loop !16
done90:
  br label %before163
before163:
  br label %loop164
loop164:
  %t166 = phi i64 [ 0, %before163 ], [ %t166.next, %next165 ]
  %v167 = mul i64 %t166, 8
  %v168 = add i64 %v65, %v167
  %v169 = mul i64 %t166, 2
  br label %before170
before170:
  br label %loop171
loop171:
  %t173 = phi i64 [ 0, %before170 ], [ %t173.next, %next172 ]
  %v174 = add i64 %v168, %t173
  %v175 = add i64 %v169, %t173
  %v176 = mul i64 %v175, 2
  br label %before177
before177:
  br label %loop178
loop178:
  %t180 = phi i64 [ 0, %before177 ], [ %t180.next, %next179 ]
  %v181 = mul i64 %t180, 1024
  %v182 = add i64 %v174, %v181
  %v183 = getelementptr float, ptr %data0, i64 %v182
  %v184 = getelementptr float, ptr %v183, <16 x i32> <i32 0, i32 64, i32 128, i32 192, i32 256, i32 320, i32 384, i32 448, i32 512, i32 576, i32 640, i32 704, i32 768, i32 832, i32 896, i32 960>
  %v185 = add i64 %v176, %t180
  %v186 = getelementptr <16 x float>, ptr %acc0, i64 %v185
  %v187 = load <16 x float>, ptr %v186, align 64
  call void @llvm.masked.scatter.v16f32.v16p0(<16 x float> %v187, <16 x ptr> align 4 %v184, <16 x i1> splat (i1 true))
  br label %next179
next179:
  %t180.next = add nuw nsw i64 %t180, 1
  %v188 = icmp slt i64 %t180.next, 2
  br i1 %v188, label %loop178, label %done180, !llvm.loop !17
done180:
  br label %next172
next172:
  %t173.next = add nuw nsw i64 %t173, 1
  %v189 = icmp slt i64 %t173.next, 2
  br i1 %v189, label %loop171, label %done173, !llvm.loop !18
done173:
  br label %next165
next165:
  %t166.next = add nuw nsw i64 %t166, 1
  %v190 = icmp slt i64 %t166.next, 4
  br i1 %v190, label %loop164, label %done166, !llvm.loop !19
done166:
  br label %next62
next62:
  %i63.next = add nuw nsw i64 %i63, 1
  %v191 = icmp slt i64 %i63.next, 4
  br i1 %v191, label %loop61, label %done63, !llvm.loop !20
done63:
  br label %next54
next54:
  %i55.next = add nuw nsw i64 %i55, 1
  %v192 = icmp slt i64 %i55.next, 2
  br i1 %v192, label %loop53, label %done55, !llvm.loop !21
done55:
  br label %next47
next47:
  %item49.next = add nuw nsw i64 %item49, 1
  %v193 = icmp slt i64 %item49.next, %end
  br i1 %v193, label %loop46, label %done48, !llvm.loop !22
done48:
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
!7 = distinct !{!7, !1, !2}
!8 = distinct !{!8, !0, !2}
!9 = distinct !{!9, !0, !2}
!10 = distinct !{!10, !0, !2}
!11 = distinct !{!11, !0, !2}
!12 = distinct !{!12, !0, !2}
!13 = distinct !{!13, !0, !2}
!14 = distinct !{!14, !2}
!15 = distinct !{!15, !1, !2}
!16 = distinct !{!16, !1, !2}
!17 = distinct !{!17, !0, !2}
!18 = distinct !{!18, !0, !2}
!19 = distinct !{!19, !0, !2}
!20 = distinct !{!20, !1, !2}
!21 = distinct !{!21, !1, !2}
!22 = distinct !{!22, !1, !2}
