; reduction loop 1 in 4 x 16 lanes
; grid 512
define internal void @row_sum.body(ptr noalias %data0, ptr noalias %data1, i64 %begin, i64 %end) #0 {
entry:
  %acc1 = alloca [1 x <16 x float>], align 64
  %acc0 = alloca [4 x <16 x float>], align 64
  %v5 = icmp slt i64 %begin, %end
  br i1 %v5, label %before1, label %done4
before1:
  br label %loop2
loop2:
  %item5 = phi i64 [ %begin, %before1 ], [ %item5.next, %next3 ]
  %v6 = getelementptr float, ptr %data0, i64 %item5
  %v7 = getelementptr <16 x float>, ptr %acc1, i64 0
  store <16 x float> splat (float 0x0000000000000000), ptr %v7, align 64
  br label %before8
before8:
  br label %loop9
loop9:
  %t11 = phi i64 [ 0, %before8 ], [ %t11.next, %next10 ]
  %v12 = getelementptr <16 x float>, ptr %acc0, i64 %t11
  store <16 x float> splat (float 0x0000000000000000), ptr %v12, align 64
  br label %next10
next10:
  %t11.next = add nuw nsw i64 %t11, 1
  %v13 = icmp slt i64 %t11.next, 4
  br i1 %v13, label %loop9, label %done11, !llvm.loop !3
done11:
  %v14 = mul i64 %item5, 1001
  br label %before15
before15:
  br label %loop16
loop16:
  %k18 = phi i64 [ 0, %before15 ], [ %k18.next, %next17 ]
  %v19 = mul i64 %k18, 64
  %v20 = mul i64 %v19, -1
  %v21 = add i64 1001, %v20
  %v22 = trunc i64 %v21 to i32
  %v23 = insertelement <16 x i32> poison, i32 %v22, i32 0
  %v24 = shufflevector <16 x i32> %v23, <16 x i32> poison, <16 x i32> zeroinitializer
  %v25 = add i64 %v14, %v19
  br label %before26
before26:
  br label %loop27
loop27:
  %t29 = phi i64 [ 0, %before26 ], [ %t29.next, %next28 ]
  %v30 = getelementptr <16 x float>, ptr %acc0, i64 %t29
  %v31 = load <16 x float>, ptr %v30, align 64
  %v32 = mul i64 %t29, 16
  %v33 = trunc i64 %v32 to i32
  %v34 = insertelement <16 x i32> poison, i32 %v33, i32 0
  %v35 = shufflevector <16 x i32> %v34, <16 x i32> poison, <16 x i32> zeroinitializer
  %v36 = add <16 x i32> %v35, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v37 = icmp slt <16 x i32> %v36, %v24
  %v38 = add i64 %v25, %v32
  %v39 = getelementptr float, ptr %data1, i64 %v38
  %v40 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v39, <16 x i1> %v37, <16 x float> splat (float 0x0000000000000000))
  %v41 = select <16 x i1> %v37, <16 x float> %v40, <16 x float> splat (float 0x0000000000000000)
  %v42 = fadd reassoc nsz contract <16 x float> %v31, %v41
  store <16 x float> %v42, ptr %v30, align 64
  br label %next28
next28:
  %t29.next = add nuw nsw i64 %t29, 1
  %v43 = icmp slt i64 %t29.next, 4
  br i1 %v43, label %loop27, label %done29, !llvm.loop !4
done29:
  br label %next17
next17:
  %k18.next = add nuw nsw i64 %k18, 1
  %v44 = icmp slt i64 %k18.next, 16
  br i1 %v44, label %loop16, label %done18, !llvm.loop !5
done18:
  br label %before45
before45:
  br label %loop46
loop46:
  %t48 = phi i64 [ 0, %before45 ], [ %t48.next, %next47 ]
  %v49 = getelementptr <16 x float>, ptr %acc1, i64 0
  %v50 = load <16 x float>, ptr %v49, align 64
  %v51 = getelementptr <16 x float>, ptr %acc0, i64 %t48
  %v52 = load <16 x float>, ptr %v51, align 64
  %v53 = fadd reassoc nsz contract <16 x float> %v50, %v52
  store <16 x float> %v53, ptr %v49, align 64
  br label %next47
next47:
  %t48.next = add nuw nsw i64 %t48, 1
  %v54 = icmp slt i64 %t48.next, 4
  br i1 %v54, label %loop46, label %done48, !llvm.loop !6
done48:
  %v55 = getelementptr <16 x float>, ptr %acc1, i64 0
  %v56 = load <16 x float>, ptr %v55, align 64
  %v57 = call reassoc nsz contract float @llvm.vector.reduce.fadd.v16f32(float -0.0, <16 x float> %v56)
  store float %v57, ptr %v6, align 4
  br label %next3
next3:
  %item5.next = add nuw nsw i64 %item5, 1
  %v58 = icmp slt i64 %item5.next, %end
  br i1 %v58, label %loop2, label %done4, !llvm.loop !7
done4:
  ret void
}
define void @row_sum(ptr %buffers, ptr %values, i64 %begin, i64 %end) #1 {
  %data0.at = getelementptr ptr, ptr %buffers, i64 0
  %data0 = load ptr, ptr %data0.at
  %data1.at = getelementptr ptr, ptr %buffers, i64 1
  %data1 = load ptr, ptr %data1.at
  call void @row_sum.body(ptr %data0, ptr %data1, i64 %begin, i64 %end)
  ret void
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, <16 x i1>, <16 x float>)
declare float @llvm.vector.reduce.fadd.v16f32(float, <16 x float>)
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
