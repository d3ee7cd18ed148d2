; half.c for aarch64-linux, written by build.py with clang 22.1.8

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define half @__truncsfhf2(float noundef %0) local_unnamed_addr #0 {
  %2 = bitcast float %0 to i32
  %3 = zext i32 %2 to i64
  %4 = and i64 %3, 2147483647
  %5 = icmp samesign ugt i64 %4, 2139095040
  br i1 %5, label %6, label %10

6:                                                ; preds = %1
  %7 = lshr i64 %3, 13
  %8 = and i64 %7, 511
  %9 = or disjoint i64 %8, 32256
  br label %45

10:                                               ; preds = %1
  %11 = icmp samesign ult i64 %4, 1199570944
  br i1 %11, label %12, label %45

12:                                               ; preds = %10
  %13 = icmp samesign ult i64 %4, 947912704
  br i1 %13, label %24, label %14

14:                                               ; preds = %12
  %15 = add nsw i64 %4, -939524096
  %16 = lshr i64 %15, 13
  %17 = and i64 %3, 8191
  %18 = icmp samesign ugt i64 %17, 4096
  %19 = and i64 %3, 16383
  %20 = icmp eq i64 %19, 12288
  %21 = or i1 %18, %20
  %22 = zext i1 %21 to i64
  %23 = add nuw nsw i64 %16, %22
  br label %45

24:                                               ; preds = %12
  %25 = and i64 %3, 8388607
  %26 = or disjoint i64 %25, 8388608
  %27 = lshr i64 %4, 23
  %28 = sub nuw nsw i64 113, %27
  %29 = tail call i64 @llvm.umin.i64(i64 %28, i64 63)
  %30 = lshr i64 %26, %29
  %31 = shl i64 %30, %29
  %32 = icmp ne i64 %31, %26
  %33 = zext i1 %32 to i64
  %34 = lshr i64 %30, 13
  %35 = and i64 %30, 8191
  %36 = or i64 %35, %33
  %37 = icmp samesign ugt i64 %36, 4096
  %38 = icmp eq i64 %36, 4096
  %39 = and i64 %30, 8192
  %40 = icmp ne i64 %39, 0
  %41 = select i1 %38, i1 %40, i1 false
  %42 = select i1 %37, i1 true, i1 %41
  %43 = zext i1 %42 to i64
  %44 = add nuw nsw i64 %34, %43
  br label %45

45:                                               ; preds = %6, %10, %14, %24
  %46 = phi i64 [ %9, %6 ], [ %44, %24 ], [ %23, %14 ], [ 31744, %10 ]
  %47 = lshr i64 %3, 16
  %48 = and i64 %47, 32768
  %49 = or i64 %46, %48
  %50 = trunc nuw i64 %49 to i16
  %51 = bitcast i16 %50 to half
  ret half %51
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define half @__truncdfhf2(double noundef %0) local_unnamed_addr #0 {
  %2 = tail call double @llvm.fabs.f64(double %0)
  %3 = bitcast double %2 to i64
  %4 = icmp samesign ugt i64 %3, 9218868437227405312
  br i1 %4, label %5, label %9

5:                                                ; preds = %1
  %6 = lshr i64 %3, 42
  %7 = and i64 %6, 511
  %8 = or disjoint i64 %7, 32256
  br label %44

9:                                                ; preds = %1
  %10 = icmp samesign ult i64 %3, 4679240012837945344
  br i1 %10, label %11, label %44

11:                                               ; preds = %9
  %12 = icmp samesign ult i64 %3, 4544132024016830464
  br i1 %12, label %23, label %13

13:                                               ; preds = %11
  %14 = add nsw i64 %3, -4539628424389459968
  %15 = lshr i64 %14, 42
  %16 = and i64 %3, 4398046511103
  %17 = icmp samesign ugt i64 %16, 2199023255552
  %18 = and i64 %3, 8796093022207
  %19 = icmp eq i64 %18, 6597069766656
  %20 = or i1 %17, %19
  %21 = zext i1 %20 to i64
  %22 = add nuw nsw i64 %15, %21
  br label %44

23:                                               ; preds = %11
  %24 = and i64 %3, 4503599627370495
  %25 = or disjoint i64 %24, 4503599627370496
  %26 = lshr i64 %3, 52
  %27 = sub nuw nsw i64 1009, %26
  %28 = tail call i64 @llvm.umin.i64(i64 %27, i64 63)
  %29 = lshr i64 %25, %28
  %30 = shl i64 %29, %28
  %31 = icmp ne i64 %30, %25
  %32 = zext i1 %31 to i64
  %33 = lshr i64 %29, 42
  %34 = and i64 %29, 4398046511103
  %35 = or i64 %34, %32
  %36 = icmp samesign ugt i64 %35, 2199023255552
  %37 = icmp eq i64 %35, 2199023255552
  %38 = and i64 %29, 4398046511104
  %39 = icmp ne i64 %38, 0
  %40 = select i1 %37, i1 %39, i1 false
  %41 = select i1 %36, i1 true, i1 %40
  %42 = zext i1 %41 to i64
  %43 = add nuw nsw i64 %33, %42
  br label %44

44:                                               ; preds = %5, %9, %13, %23
  %45 = phi i64 [ %8, %5 ], [ %43, %23 ], [ %22, %13 ], [ 31744, %9 ]
  %46 = bitcast double %0 to i64
  %47 = lshr i64 %46, 48
  %48 = and i64 %47, 32768
  %49 = or i64 %45, %48
  %50 = trunc nuw i64 %49 to i16
  %51 = bitcast i16 %50 to half
  ret half %51
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define float @__extendhfsf2(half noundef %0) local_unnamed_addr #0 {
  %2 = tail call half @llvm.fabs.f16(half %0)
  %3 = bitcast half %2 to i16
  %4 = zext nneg i16 %3 to i32
  %5 = shl nuw nsw i32 %4, 13
  %6 = icmp samesign ugt i16 %3, 31743
  br i1 %6, label %7, label %9

7:                                                ; preds = %1
  %8 = or i32 %5, 2139095040
  br label %17

9:                                                ; preds = %1
  %10 = icmp samesign ugt i16 %3, 1023
  br i1 %10, label %11, label %13

11:                                               ; preds = %9
  %12 = add nuw nsw i32 %5, 939524096
  br label %17

13:                                               ; preds = %9
  %14 = uitofp nneg i16 %3 to float
  %15 = fmul float %14, 0x3E70000000000000
  %16 = bitcast float %15 to i32
  br label %17

17:                                               ; preds = %11, %13, %7
  %18 = phi i32 [ %8, %7 ], [ %12, %11 ], [ %16, %13 ]
  %19 = bitcast half %0 to i16
  %20 = sext i16 %19 to i32
  %21 = and i32 %20, -2147483648
  %22 = or i32 %18, %21
  %23 = bitcast i32 %22 to float
  ret float %23
}

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare half @llvm.fabs.f16(half) #1

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.umin.i64(i64, i64) #1

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare double @llvm.fabs.f64(double) #1

attributes #0 = { mustprogress nofree norecurse nosync nounwind willreturn memory(none) "no-trapping-math"="true" }
attributes #1 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

!llvm.module.flags = !{!0, !1, !2, !3}
!llvm.errno.tbaa = !{!5}

!0 = !{i32 7, !"Dwarf Version", i32 4}
!1 = !{i32 1, !"wchar_size", i32 4}
!2 = !{i32 8, !"PIC Level", i32 2}
!3 = !{i32 7, !"frame-pointer", i32 4}
!4 = !{!"clang version 22.1.8"}
!5 = !{!6, !6, i64 0}
!6 = !{!"int", !7, i64 0}
!7 = !{!"omnipotent char", !8, i64 0}
!8 = !{!"Simple C/C++ TBAA"}
