; output loop 0 in 8 x 16 lanes
; grid 4
define internal void @column_max.body(ptr noalias %data0, ptr noalias %data1, i64 %begin, i64 %end) #0 {
entry:
  %acc0 = alloca [8 x <16 x float>], align 64
  %v5 = icmp slt i64 %begin, %end
  br i1 %v5, label %before1, label %done4
before1:
  br label %loop2
loop2:
  %item5 = phi i64 [ %begin, %before1 ], [ %item5.next, %next3 ]
  %v6 = mul i64 %item5, 128
  br label %before7
before7:
  br label %loop8
loop8:
  %t10 = phi i64 [ 0, %before7 ], [ %t10.next, %next9 ]
  %v11 = getelementptr <16 x float>, ptr %acc0, i64 %t10
  store <16 x float> splat (float 0xFFF0000000000000), ptr %v11, align 64
  br label %next9
next9:
  %t10.next = add nuw nsw i64 %t10, 1
  %v12 = icmp slt i64 %t10.next, 8
  br i1 %v12, label %loop8, label %done10, !llvm.loop !3
done10:
  br label %before13
before13:
  br label %loop14
loop14:
  %k16 = phi i64 [ 0, %before13 ], [ %k16.next, %next15 ]
  %v17 = mul i64 %k16, 512
  %v18 = add i64 %v6, %v17
  br label %before19
before19:
  br label %loop20
loop20:
  %t22 = phi i64 [ 0, %before19 ], [ %t22.next, %next21 ]
  %v23 = getelementptr <16 x float>, ptr %acc0, i64 %t22
  %v24 = load <16 x float>, ptr %v23, align 64
  %v25 = mul i64 %t22, 16
  %v26 = add i64 %v18, %v25
  %v27 = getelementptr float, ptr %data1, i64 %v26
  %v28 = load <16 x float>, ptr %v27, align 4
  %v29 = call nsz <16 x float> @llvm.maximum.v16f32(<16 x float> %v24, <16 x float> %v28)
  store <16 x float> %v29, ptr %v23, align 64
  br label %next21
next21:
  %t22.next = add nuw nsw i64 %t22, 1
  %v30 = icmp slt i64 %t22.next, 8
  br i1 %v30, label %loop20, label %done22, !llvm.loop !4
done22:
  br label %next15
next15:
  %k16.next = add nuw nsw i64 %k16, 1
  %v31 = icmp slt i64 %k16.next, 300
  br i1 %v31, label %loop14, label %done16, !llvm.loop !5
done16:
  br label %before32
before32:
  br label %loop33
loop33:
  %t35 = phi i64 [ 0, %before32 ], [ %t35.next, %next34 ]
  %v36 = mul i64 %t35, 16
  %v37 = add i64 %v6, %v36
  %v38 = getelementptr float, ptr %data0, i64 %v37
  %v39 = getelementptr <16 x float>, ptr %acc0, i64 %t35
  %v40 = load <16 x float>, ptr %v39, align 64
  store <16 x float> %v40, ptr %v38, align 4
  br label %next34
next34:
  %t35.next = add nuw nsw i64 %t35, 1
  %v41 = icmp slt i64 %t35.next, 8
  br i1 %v41, label %loop33, label %done35, !llvm.loop !6
done35:
  br label %next3
next3:
  %item5.next = add nuw nsw i64 %item5, 1
  %v42 = icmp slt i64 %item5.next, %end
  br i1 %v42, label %loop2, label %done4, !llvm.loop !7
done4:
  ret void
}
define void @column_max(ptr %buffers, ptr %values, i64 %begin, i64 %end) #1 {
  %data0.at = getelementptr ptr, ptr %buffers, i64 0
  %data0 = load ptr, ptr %data0.at
  %data1.at = getelementptr ptr, ptr %buffers, i64 1
  %data1 = load ptr, ptr %data1.at
  call void @column_max.body(ptr %data0, ptr %data1, i64 %begin, i64 %end)
  ret void
}
declare <16 x float> @llvm.maximum.v16f32(<16 x float>, <16 x float>)
attributes #0 = { nounwind noinline "prefer-vector-width"="512" }
attributes #1 = { nounwind }
!0 = !{!"llvm.loop.unroll.full"}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = distinct !{!3, !0, !2}
!4 = distinct !{!4, !0, !2}
!5 = distinct !{!5, !1, !2}
!6 = distinct !{!6, !0, !2}
!7 = distinct !{!7, !1, !2}
