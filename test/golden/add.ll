; output loop 0 in 1 x 16 lanes
; grid 6251
define internal void @add.body(ptr noalias %data0, ptr noalias %data1, ptr noalias %data2, i64 %begin, i64 %end) #0 {
entry:
  %v5 = icmp slt i64 %begin, %end
  br i1 %v5, label %before1, label %done4
before1:
  br label %loop2
loop2:
  %item5 = phi i64 [ %begin, %before1 ], [ %item5.next, %next3 ]
  %v6 = icmp slt i64 %item5, 6250
  %v7 = mul i64 %item5, 16
  %v8 = select i1 %v6, i64 %v7, i64 99987
  %v9 = getelementptr float, ptr %data0, i64 %v8
  %v10 = getelementptr float, ptr %data1, i64 %v8
  %v11 = load <16 x float>, ptr %v10, align 4
  %v12 = getelementptr float, ptr %data2, i64 %v8
  %v13 = load <16 x float>, ptr %v12, align 4
  %v14 = fadd contract <16 x float> %v11, %v13
  store <16 x float> %v14, ptr %v9, align 4
  br label %next3
next3:
  %item5.next = add nuw nsw i64 %item5, 1
  %v15 = icmp slt i64 %item5.next, %end
  br i1 %v15, label %loop2, label %done4, !llvm.loop !3
done4:
  ret void
}
define void @add(ptr %buffers, ptr %values, i64 %begin, i64 %end) #1 {
  %data0.at = getelementptr ptr, ptr %buffers, i64 0
  %data0 = load ptr, ptr %data0.at
  %data1.at = getelementptr ptr, ptr %buffers, i64 1
  %data1 = load ptr, ptr %data1.at
  %data2.at = getelementptr ptr, ptr %buffers, i64 2
  %data2 = load ptr, ptr %data2.at
  call void @add.body(ptr %data0, ptr %data1, ptr %data2, i64 %begin, i64 %end)
  ret void
}
attributes #0 = { nounwind noinline "prefer-vector-width"="512" }
attributes #1 = { nounwind }
!0 = !{!"llvm.loop.unroll.full"}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = distinct !{!3, !1, !2}
