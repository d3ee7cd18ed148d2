; grid 43
; tile 6 of loop 0 by 4 x 16 lanes of loop 1, panel packed
define internal void @matmul.body(ptr noalias %data0, ptr noalias %data1, ptr noalias %data2, i64 %begin, i64 %end) #0 {
entry:
  %acc0 = alloca [24 x <16 x float>], align 64
  %scratch0 = alloca [65536 x float], align 64
  br label %before1
before1:
  br label %loop2
loop2:
  %i4 = phi i64 [ 0, %before1 ], [ %i4.next, %next3 ]
  %v5 = mul i64 %i4, 16384
  %v6 = mul i64 %i4, 64
  br label %before7
before7:
  br label %loop8
loop8:
  %i10 = phi i64 [ 0, %before7 ], [ %i10.next, %next9 ]
  %v11 = mul i64 %i10, 64
  %v12 = add i64 %v5, %v11
  %v13 = mul i64 %i10, 256
  %v14 = add i64 %v6, %v13
  br label %before15
before15:
  br label %loop16
loop16:
  %i18 = phi i64 [ 0, %before15 ], [ %i18.next, %next17 ]
  %v19 = mul i64 %i18, 16
  %v20 = add i64 %v12, %v19
  %v21 = getelementptr float, ptr %scratch0, i64 %v20
  %v22 = add i64 %v14, %v19
  %v23 = getelementptr float, ptr %data2, i64 %v22
  %v24 = load <16 x float>, ptr %v23, align 4
  store <16 x float> %v24, ptr %v21, align 4
  br label %next17
next17:
  %i18.next = add nuw nsw i64 %i18, 1
  %v25 = icmp slt i64 %i18.next, 4
  br i1 %v25, label %loop16, label %done18, !llvm.loop !3
done18:
  br label %next9
next9:
  %i10.next = add nuw nsw i64 %i10, 1
  %v26 = icmp slt i64 %i10.next, 256
  br i1 %v26, label %loop8, label %done10, !llvm.loop !4
done10:
  br label %next3
next3:
  %i4.next = add nuw nsw i64 %i4, 1
  %v27 = icmp slt i64 %i4.next, 4
  br i1 %v27, label %loop2, label %done4, !llvm.loop !5
done4:
  %v32 = icmp slt i64 %begin, %end
  br i1 %v32, label %before28, label %done31
before28:
  br label %loop29
loop29:
  %item32 = phi i64 [ %begin, %before28 ], [ %item32.next, %next30 ]
  %v33 = icmp slt i64 %item32, 42
  %v34 = mul i64 %item32, 6
  %v35 = select i1 %v33, i64 %v34, i64 250
  %v36 = mul i64 %v35, 256
  br label %before37
before37:
  br label %loop38
loop38:
  %i40 = phi i64 [ 0, %before37 ], [ %i40.next, %next39 ]
  %v41 = mul i64 %i40, 64
  %v42 = add i64 %v36, %v41
  br label %before43
before43:
  br label %loop44
loop44:
  %t46 = phi i64 [ 0, %before43 ], [ %t46.next, %next45 ]
  %v47 = mul i64 %t46, 4
  br label %before48
before48:
  br label %loop49
loop49:
  %t51 = phi i64 [ 0, %before48 ], [ %t51.next, %next50 ]
  %v52 = add i64 %v47, %t51
  %v53 = getelementptr <16 x float>, ptr %acc0, i64 %v52
  store <16 x float> splat (float 0x0000000000000000), ptr %v53, align 64
  br label %next50
next50:
  %t51.next = add nuw nsw i64 %t51, 1
  %v54 = icmp slt i64 %t51.next, 4
  br i1 %v54, label %loop49, label %done51, !llvm.loop !6
done51:
  br label %next45
next45:
  %t46.next = add nuw nsw i64 %t46, 1
  %v55 = icmp slt i64 %t46.next, 6
  br i1 %v55, label %loop44, label %done46, !llvm.loop !7
done46:
  %v56 = mul i64 %i40, 16384
  br label %before57
before57:
  br label %loop58
loop58:
  %k60 = phi i64 [ 0, %before57 ], [ %k60.next, %next59 ]
  %v61 = add i64 %v36, %k60
  %v62 = mul i64 %k60, 64
  %v63 = add i64 %v56, %v62
  br label %before64
before64:
  br label %loop65
loop65:
  %t67 = phi i64 [ 0, %before64 ], [ %t67.next, %next66 ]
  %v68 = mul i64 %t67, 4
  %v69 = mul i64 %t67, 256
  %v70 = add i64 %v61, %v69
  %v71 = getelementptr float, ptr %data1, i64 %v70
  %v72 = load float, ptr %v71, align 4
  %v73 = insertelement <16 x float> poison, float %v72, i32 0
  %v74 = shufflevector <16 x float> %v73, <16 x float> poison, <16 x i32> zeroinitializer
  br label %before75
before75:
  br label %loop76
loop76:
  %t78 = phi i64 [ 0, %before75 ], [ %t78.next, %next77 ]
  %v79 = add i64 %v68, %t78
  %v80 = getelementptr <16 x float>, ptr %acc0, i64 %v79
  %v81 = load <16 x float>, ptr %v80, align 64
  %v82 = mul i64 %t78, 16
  %v83 = add i64 %v63, %v82
  %v84 = getelementptr float, ptr %scratch0, i64 %v83
  %v85 = load <16 x float>, ptr %v84, align 4
  %v86 = fmul contract <16 x float> %v74, %v85
  %v87 = fadd reassoc nsz contract <16 x float> %v81, %v86
  store <16 x float> %v87, ptr %v80, align 64
  br label %next77
next77:
  %t78.next = add nuw nsw i64 %t78, 1
  %v88 = icmp slt i64 %t78.next, 4
  br i1 %v88, label %loop76, label %done78, !llvm.loop !8
done78:
  br label %next66
next66:
  %t67.next = add nuw nsw i64 %t67, 1
  %v89 = icmp slt i64 %t67.next, 6
  br i1 %v89, label %loop65, label %done67, !llvm.loop !9
done67:
  br label %next59
next59:
  %k60.next = add nuw nsw i64 %k60, 1
  %v90 = icmp slt i64 %k60.next, 256
  br i1 %v90, label %loop58, label %done60, !llvm.loop !10
done60:
  br label %before91
before91:
  br label %loop92
loop92:
  %t94 = phi i64 [ 0, %before91 ], [ %t94.next, %next93 ]
  %v95 = mul i64 %t94, 256
  %v96 = add i64 %v42, %v95
  %v97 = mul i64 %t94, 4
  br label %before98
before98:
  br label %loop99
loop99:
  %t101 = phi i64 [ 0, %before98 ], [ %t101.next, %next100 ]
  %v102 = mul i64 %t101, 16
  %v103 = add i64 %v96, %v102
  %v104 = getelementptr float, ptr %data0, i64 %v103
  %v105 = add i64 %v97, %t101
  %v106 = getelementptr <16 x float>, ptr %acc0, i64 %v105
  %v107 = load <16 x float>, ptr %v106, align 64
  store <16 x float> %v107, ptr %v104, align 4
  br label %next100
next100:
  %t101.next = add nuw nsw i64 %t101, 1
  %v108 = icmp slt i64 %t101.next, 4
  br i1 %v108, label %loop99, label %done101, !llvm.loop !11
done101:
  br label %next93
next93:
  %t94.next = add nuw nsw i64 %t94, 1
  %v109 = icmp slt i64 %t94.next, 6
  br i1 %v109, label %loop92, label %done94, !llvm.loop !12
done94:
  br label %next39
next39:
  %i40.next = add nuw nsw i64 %i40, 1
  %v110 = icmp slt i64 %i40.next, 4
  br i1 %v110, label %loop38, label %done40, !llvm.loop !13
done40:
  br label %next30
next30:
  %item32.next = add nuw nsw i64 %item32, 1
  %v111 = icmp slt i64 %item32.next, %end
  br i1 %v111, label %loop29, label %done31, !llvm.loop !14
done31:
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
attributes #0 = { nounwind noinline "prefer-vector-width"="512" }
attributes #1 = { nounwind }
!0 = !{!"llvm.loop.unroll.full"}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = distinct !{!3, !2}
!4 = distinct !{!4, !1, !2}
!5 = distinct !{!5, !1, !2}
!6 = distinct !{!6, !0, !2}
!7 = distinct !{!7, !0, !2}
!8 = distinct !{!8, !0, !2}
!9 = distinct !{!9, !0, !2}
!10 = distinct !{!10, !1, !2}
!11 = distinct !{!11, !0, !2}
!12 = distinct !{!12, !0, !2}
!13 = distinct !{!13, !1, !2}
!14 = distinct !{!14, !1, !2}
