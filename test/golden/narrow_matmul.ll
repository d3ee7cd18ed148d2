define internal void @matmul.body(ptr noalias %data0, ptr noalias %data1, ptr noalias %data2, i64 %begin, i64 %end) #0 {
entry:
  %scratch10 = alloca [2048 x float], align 64
  %acc20 = alloca [256 x float], align 64
  %scratch8 = alloca [32768 x i16], align 64
  %scratch9 = alloca [32768 x i32], align 64
  %acc21 = alloca [256 x float], align 64
  %acc22 = alloca [256 x float], align 64
  %acc23 = alloca [256 x float], align 64
  %v5 = icmp slt i64 %begin, %end
  br i1 %v5, label %before1, label %done4
before1:
  br label %loop2
loop2:
  %item5 = phi i64 [ %begin, %before1 ], [ %item5.next, %next3 ]
  %v6 = and i64 %item5, 0
  %v7 = mul i64 %v6, 64
  %v8 = ashr i64 %item5, 0
  %v9 = mul i64 %v8, 4096
  %v10 = add i64 %v7, %v9
  %v11 = mul i64 %v8, 65536
  br label %before12
before12:
  br label %loop13
loop13:
  %i15 = phi i64 [ 0, %before12 ], [ %i15.next, %next14 ]
  %v16 = mul i64 %i15, 256
  %v17 = mul i64 %i15, 2048
  %v18 = add i64 %v7, %v17
  br label %before19
before19:
  br label %loop20
loop20:
  %i22 = phi i64 [ 0, %before19 ], [ %i22.next, %next21 ]
  %v23 = mul i64 %i22, 16
  %v24 = mul i64 %i22, 128
  br label %before25
before25:
  br label %loop26
loop26:
  %i28 = phi i64 [ 0, %before25 ], [ %i28.next, %next27 ]
  %v29 = mul i64 %i28, 8192
  %v30 = add i64 %v16, %v29
  %v31 = add i64 %v30, %v23
  %v32 = getelementptr i32, ptr %scratch9, i64 %v31
  %v33 = mul i64 %i28, 16
  %v34 = add i64 %v18, %v33
  %v35 = add i64 %v34, %v24
  %v36 = getelementptr i16, ptr %data2, i64 %v35
  %v37 = load <16 x i16>, ptr %v36, align 2
  %v38 = zext <16 x i16> %v37 to <16 x i32>
  %v39 = add i64 %v35, 64
  %v40 = getelementptr i16, ptr %data2, i64 %v39
  %v41 = load <16 x i16>, ptr %v40, align 2
  %v42 = zext <16 x i16> %v41 to <16 x i32>
  %v43 = shl <16 x i32> %v42, splat (i32 16)
  %v44 = or <16 x i32> %v38, %v43
  store <16 x i32> %v44, ptr %v32, align 4
  br label %next27
next27:
  %i28.next = add nuw nsw i64 %i28, 1
  %v45 = icmp slt i64 %i28.next, 4
  br i1 %v45, label %loop26, label %done28, !llvm.loop !3
done28:
  br label %next21
next21:
  %i22.next = add nuw nsw i64 %i22, 1
  %v46 = icmp slt i64 %i22.next, 16
  br i1 %v46, label %loop20, label %done22, !llvm.loop !4
done22:
  br label %next14
next14:
  %i15.next = add nuw nsw i64 %i15, 1
  %v47 = icmp slt i64 %i15.next, 32
  br i1 %v47, label %loop13, label %done15, !llvm.loop !5
done15:
  br label %before48
before48:
  br label %loop49
loop49:
  %i51 = phi i64 [ 0, %before48 ], [ %i51.next, %next50 ]
  %v52 = mul i64 %i51, 2048
  %v53 = add i64 %v10, %v52
  %v54 = mul i64 %i51, 32768
  %v55 = add i64 %v11, %v54
  br label %before56
before56:
  br label %loop57
loop57:
  %i59 = phi i64 [ 0, %before56 ], [ %i59.next, %next58 ]
  %v60 = mul i64 %i59, 16384
  %v61 = add i64 %v55, %v60
  br label %before62
before62:
  br label %loop63
loop63:
  %i65 = phi i64 [ 0, %before62 ], [ %i65.next, %next64 ]
  %v66 = mul i64 %i65, 32
  %v67 = mul i64 %i65, 1024
  br label %before68
before68:
  br label %loop69
loop69:
  %i71 = phi i64 [ 0, %before68 ], [ %i71.next, %next70 ]
  %v72 = mul i64 %i71, 512
  %v73 = add i64 %v60, %v72
  %v74 = add i64 %v73, %v66
  %v75 = getelementptr i16, ptr %scratch8, i64 %v74
  %v76 = mul i64 %i71, 32
  %v77 = add i64 %v61, %v76
  %v78 = add i64 %v77, %v67
  %v79 = getelementptr i16, ptr %data1, i64 %v78
  %v80 = load <32 x i16>, ptr %v79, align 2
  store <32 x i16> %v80, ptr %v75, align 2
  br label %next70
next70:
  %i71.next = add nuw nsw i64 %i71, 1
  %v81 = icmp slt i64 %i71.next, 32
  br i1 %v81, label %loop69, label %done71, !llvm.loop !6
done71:
  br label %next64
next64:
  %i65.next = add nuw nsw i64 %i65, 1
  %v82 = icmp slt i64 %i65.next, 16
  br i1 %v82, label %loop63, label %done65, !llvm.loop !7
done65:
  br label %next58
next58:
  %i59.next = add nuw nsw i64 %i59, 1
  %v83 = icmp slt i64 %i59.next, 2
  br i1 %v83, label %loop57, label %done59, !llvm.loop !8
done59:
  br label %before84
before84:
  br label %loop85
loop85:
  %i87 = phi i64 [ 0, %before84 ], [ %i87.next, %next86 ]
  %v88 = mul i64 %i87, 512
  %v89 = mul i64 %i87, 16384
  br label %before90
before90:
  br label %loop91
loop91:
  %i93 = phi i64 [ 0, %before90 ], [ %i93.next, %next92 ]
  %v94 = mul i64 %i93, 512
  %v95 = add i64 %v94, %v88
  %v96 = getelementptr float, ptr %scratch10, i64 %v95
  %v97 = getelementptr float, ptr %acc20, i64 0
  store <256 x float> splat (float 0x0000000000000000), ptr %v97, align 4
  %v98 = mul i64 %i93, 1024
  %v99 = getelementptr float, ptr %acc23, i64 0
  store <256 x float> splat (float 0x0000000000000000), ptr %v99, align 4
  %v100 = mul i64 %i93, 32768
  %v101 = getelementptr float, ptr %acc22, i64 0
  store <256 x float> splat (float 0x0000000000000000), ptr %v101, align 4
  %v102 = getelementptr float, ptr %acc21, i64 0
  store <256 x float> splat (float 0x0000000000000000), ptr %v102, align 4
  br label %before103
before103:
  br label %loop104
loop104:
  %k106 = phi i64 [ 0, %before103 ], [ %k106.next, %next105 ]
  %v107 = getelementptr float, ptr %acc20, i64 0
  %v108 = mul i64 %k106, 512
  %v109 = add i64 %v98, %v108
  %v110 = getelementptr i16, ptr %scratch8, i64 %v109
  %v111 = call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, ptr %v110, i64 64)
  %v112 = call <512 x i16> @llvm.x86.cast.tile.to.vector.v512i16(x86_amx %v111)
  %v113 = mul i64 %k106, 256
  %v114 = add i64 %v89, %v113
  %v115 = getelementptr i32, ptr %scratch9, i64 %v114
  %v116 = call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, ptr %v115, i64 64)
  %v117 = call <256 x i32> @llvm.x86.cast.tile.to.vector.v256i32(x86_amx %v116)
  %v118 = load <256 x float>, ptr %v107, align 4
  %v119 = call x86_amx @llvm.x86.cast.vector.to.tile.v256f32(<256 x float> %v118)
  %v120 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 16, i16 64, i16 64, x86_amx %v119, x86_amx %v111, x86_amx %v116)
  %v121 = call <256 x float> @llvm.x86.cast.tile.to.vector.v256f32(x86_amx %v120)
  store <256 x float> %v121, ptr %v107, align 4
  %v122 = getelementptr float, ptr %acc21, i64 0
  %v123 = add i64 %v114, 8192
  %v124 = getelementptr i32, ptr %scratch9, i64 %v123
  %v125 = call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, ptr %v124, i64 64)
  %v126 = call <256 x i32> @llvm.x86.cast.tile.to.vector.v256i32(x86_amx %v125)
  %v127 = load <256 x float>, ptr %v122, align 4
  %v128 = call x86_amx @llvm.x86.cast.vector.to.tile.v256f32(<256 x float> %v127)
  %v129 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 16, i16 64, i16 64, x86_amx %v128, x86_amx %v111, x86_amx %v125)
  %v130 = call <256 x float> @llvm.x86.cast.tile.to.vector.v256f32(x86_amx %v129)
  store <256 x float> %v130, ptr %v122, align 4
  %v131 = getelementptr float, ptr %acc22, i64 0
  %v132 = add i64 %v100, %v108
  %v133 = add i64 %v132, 16384
  %v134 = getelementptr i16, ptr %scratch8, i64 %v133
  %v135 = call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, ptr %v134, i64 64)
  %v136 = call <512 x i16> @llvm.x86.cast.tile.to.vector.v512i16(x86_amx %v135)
  %v137 = load <256 x float>, ptr %v131, align 4
  %v138 = call x86_amx @llvm.x86.cast.vector.to.tile.v256f32(<256 x float> %v137)
  %v139 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 16, i16 64, i16 64, x86_amx %v138, x86_amx %v135, x86_amx %v116)
  %v140 = call <256 x float> @llvm.x86.cast.tile.to.vector.v256f32(x86_amx %v139)
  store <256 x float> %v140, ptr %v131, align 4
  %v141 = getelementptr float, ptr %acc23, i64 0
  %v142 = load <256 x float>, ptr %v141, align 4
  %v143 = call x86_amx @llvm.x86.cast.vector.to.tile.v256f32(<256 x float> %v142)
  %v144 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 16, i16 64, i16 64, x86_amx %v143, x86_amx %v135, x86_amx %v125)
  %v145 = call <256 x float> @llvm.x86.cast.tile.to.vector.v256f32(x86_amx %v144)
  store <256 x float> %v145, ptr %v141, align 4
  br label %next105
next105:
  %k106.next = add nuw nsw i64 %k106, 1
  %v146 = icmp slt i64 %k106.next, 32
  br i1 %v146, label %loop104, label %done106, !llvm.loop !9
done106:
  %v147 = getelementptr float, ptr %acc20, i64 0
  %v148 = load <256 x float>, ptr %v147, align 4
  store <256 x float> %v148, ptr %v96, align 4
  %v149 = add i64 %v95, 256
  %v150 = getelementptr float, ptr %scratch10, i64 %v149
  %v151 = getelementptr float, ptr %acc21, i64 0
  %v152 = load <256 x float>, ptr %v151, align 4
  store <256 x float> %v152, ptr %v150, align 4
  %v153 = mul i64 %i93, 2048
  %v154 = add i64 %v153, %v88
  %v155 = add i64 %v154, 1024
  %v156 = getelementptr float, ptr %scratch10, i64 %v155
  %v157 = getelementptr float, ptr %acc22, i64 0
  %v158 = load <256 x float>, ptr %v157, align 4
  store <256 x float> %v158, ptr %v156, align 4
  %v159 = add i64 %v154, 1280
  %v160 = getelementptr float, ptr %scratch10, i64 %v159
  %v161 = getelementptr float, ptr %acc23, i64 0
  %v162 = load <256 x float>, ptr %v161, align 4
  store <256 x float> %v162, ptr %v160, align 4
  br label %next92
next92:
  %i93.next = add nuw nsw i64 %i93, 1
  %v163 = icmp slt i64 %i93.next, 1
  br i1 %v163, label %loop91, label %done93, !llvm.loop !10
done93:
  br label %next86
next86:
  %i87.next = add nuw nsw i64 %i87, 1
  %v164 = icmp slt i64 %i87.next, 2
  br i1 %v164, label %loop85, label %done87, !llvm.loop !11
done87:
  br label %before165
before165:
  br label %loop166
loop166:
  %i168 = phi i64 [ 0, %before165 ], [ %i168.next, %next167 ]
  %v169 = mul i64 %i168, 64
  %v170 = add i64 %v53, %v169
  %v171 = ashr i64 %i168, 4
  %v172 = mul i64 %v171, 1024
  %v173 = and i64 %i168, 15
  %v174 = mul i64 %v173, 16
  %v175 = add i64 %v172, %v174
  br label %before176
before176:
  br label %loop177
loop177:
  %i179 = phi i64 [ 0, %before176 ], [ %i179.next, %next178 ]
  %v180 = mul i64 %i179, 16
  %v181 = add i64 %v170, %v180
  %v182 = getelementptr float, ptr %data0, i64 %v181
  %v183 = mul i64 %i179, 256
  %v184 = add i64 %v175, %v183
  %v185 = getelementptr float, ptr %scratch10, i64 %v184
  %v186 = load <16 x float>, ptr %v185, align 4
  store <16 x float> %v186, ptr %v182, align 4
  br label %next178
next178:
  %i179.next = add nuw nsw i64 %i179, 1
  %v187 = icmp slt i64 %i179.next, 4
  br i1 %v187, label %loop177, label %done179, !llvm.loop !12
done179:
  br label %next167
next167:
  %i168.next = add nuw nsw i64 %i168, 1
  %v188 = icmp slt i64 %i168.next, 32
  br i1 %v188, label %loop166, label %done168, !llvm.loop !13
done168:
  br label %next50
next50:
  %i51.next = add nuw nsw i64 %i51, 1
  %v189 = icmp slt i64 %i51.next, 2
  br i1 %v189, label %loop49, label %done51, !llvm.loop !14
done51:
  br label %next3
next3:
  %item5.next = add nuw nsw i64 %item5, 1
  %v190 = icmp slt i64 %item5.next, %end
  br i1 %v190, label %loop2, label %done4, !llvm.loop !15
done4:
  ret void
}
define void @matmul(ptr %buffers, ptr %values, i64 %begin, i64 %end) #1 {
  %data0.at = getelementptr ptr, ptr %buffers, i64 0
  %data0 = load ptr, ptr %data0.at
  %data1.at = getelementptr ptr, ptr %buffers, i64 1
  %data1 = load ptr, ptr %data1.at
  %data2.at = getelementptr ptr, ptr %buffers, i64 2
  %data2 = load ptr, ptr %data2.at
  call void @matmul.body(ptr %data0, ptr %data1, ptr %data2, i64 %begin, i64 %end)
  ret void
}
declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)
declare <512 x i16> @llvm.x86.cast.tile.to.vector.v512i16(x86_amx)
declare <256 x i32> @llvm.x86.cast.tile.to.vector.v256i32(x86_amx)
declare x86_amx @llvm.x86.cast.vector.to.tile.v256f32(<256 x float>)
declare x86_amx @llvm.x86.tdpbf16ps.internal(i16, i16, i16, x86_amx, x86_amx, x86_amx)
declare <256 x float> @llvm.x86.cast.tile.to.vector.v256f32(x86_amx)
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
!8 = distinct !{!8, !1, !2}
!9 = distinct !{!9, !1, !2}
!10 = distinct !{!10, !1, !2}
!11 = distinct !{!11, !1, !2}
!12 = distinct !{!12, !2}
!13 = distinct !{!13, !1, !2}
!14 = distinct !{!14, !1, !2}
!15 = distinct !{!15, !1, !2}
