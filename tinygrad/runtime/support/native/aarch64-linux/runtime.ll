; runtime.c for aarch64-linux, written by build.py with clang 22.1.8

%union.anon = type { i64, [56 x i8] }
%union.anon.0 = type { i32, [60 x i8] }
%union.anon.1 = type { i32, [60 x i8] }
%union.anon.3 = type { i64, [56 x i8] }
%struct.__sigset_t = type { [16 x i64] }
%struct.timespec = type { i64, i64 }
%struct.record = type { i64, i64, i64, i64 }
%struct.member = type { ptr, i64, i64, i64, i64 }

@gate = internal global %union.anon zeroinitializer, align 64
@sleepers = internal global %union.anon.0 zeroinitializer, align 64
@launch_lock = internal global %union.anon.1 zeroinitializer, align 64
@stopping = internal unnamed_addr global i32 0, align 4
@thread_count = internal unnamed_addr global i32 1, align 4
@poll_ns = internal unnamed_addr global i64 0, align 8
@started = internal unnamed_addr global i1 false, align 4
@workers = internal global [1024 x i64] zeroinitializer, align 8
@job.0 = internal unnamed_addr global ptr null, align 64
@job.1 = internal unnamed_addr global ptr null, align 8
@job.2 = internal unnamed_addr global ptr null, align 16
@job.3 = internal unnamed_addr global i64 0, align 8
@job.4 = internal unnamed_addr global i64 0, align 32
@next = internal global %union.anon.3 zeroinitializer, align 64

; Function Attrs: mustprogress nofree norecurse nounwind willreturn memory(readwrite, argmem: none, inaccessiblemem: none, target_mem0: none, target_mem1: none)
define void @pool_reset(i32 noundef %0, i64 noundef %1) local_unnamed_addr #0 {
  store atomic i64 0, ptr @gate seq_cst, align 64
  store atomic i32 0, ptr @sleepers seq_cst, align 64
  store atomic i32 0, ptr @launch_lock seq_cst, align 64
  store atomic i32 0, ptr @stopping seq_cst, align 4
  %3 = tail call i32 @llvm.smin.i32(i32 %0, i32 1024)
  store atomic i32 %3, ptr @thread_count seq_cst, align 4
  store atomic i64 %1, ptr @poll_ns seq_cst, align 8
  store i1 false, ptr @started, align 4
  ret void
}

; Function Attrs: nounwind
define void @pool_stop() local_unnamed_addr #1 {
  %1 = cmpxchg ptr @launch_lock, i32 0, i32 1 acquire monotonic, align 4
  %2 = extractvalue { i32, i1 } %1, 1
  br i1 %2, label %10, label %3

3:                                                ; preds = %0
  %4 = atomicrmw xchg ptr @launch_lock, i32 2 acquire, align 4
  %5 = icmp eq i32 %4, 0
  br i1 %5, label %10, label %6

6:                                                ; preds = %3, %6
  %7 = tail call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull @launch_lock, i32 noundef 128, i32 noundef 2, ptr noundef null) #9
  %8 = atomicrmw xchg ptr @launch_lock, i32 2 acquire, align 4
  %9 = icmp eq i32 %8, 0
  br i1 %9, label %10, label %6, !llvm.loop !9

10:                                               ; preds = %6, %0, %3
  %11 = load i1, ptr @started, align 4
  br i1 %11, label %12, label %14

12:                                               ; preds = %10
  %13 = load atomic i32, ptr @thread_count monotonic, align 4
  br label %14

14:                                               ; preds = %10, %12
  %15 = phi i32 [ %13, %12 ], [ 1, %10 ]
  store i1 false, ptr @started, align 4
  store atomic i32 1, ptr @thread_count monotonic, align 4
  store atomic i32 1, ptr @stopping release, align 4
  %16 = atomicrmw add ptr @gate, i64 4294967296 seq_cst, align 64
  %17 = tail call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @gate, i64 4), i32 noundef 129, i32 noundef 2147483647) #9
  %18 = icmp sgt i32 %15, 1
  br i1 %18, label %19, label %21

19:                                               ; preds = %14
  %20 = zext nneg i32 %15 to i64
  br label %27

21:                                               ; preds = %27, %14
  %22 = atomicrmw xchg ptr @launch_lock, i32 0 release, align 4
  %23 = icmp eq i32 %22, 2
  br i1 %23, label %24, label %26

24:                                               ; preds = %21
  %25 = tail call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull @launch_lock, i32 noundef 129, i32 noundef 1) #9
  br label %26

26:                                               ; preds = %21, %24
  ret void

27:                                               ; preds = %19, %27
  %28 = phi i64 [ 1, %19 ], [ %32, %27 ]
  %29 = getelementptr inbounds nuw i64, ptr @workers, i64 %28
  %30 = load i64, ptr %29, align 8, !tbaa !12
  %31 = tail call i32 @pthread_join(i64 noundef %30, ptr noundef null) #9
  %32 = add nuw nsw i64 %28, 1
  %33 = icmp eq i64 %32, %20
  br i1 %33, label %21, label %27, !llvm.loop !14
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(ptr captures(none)) #2

declare i32 @pthread_join(i64 noundef, ptr noundef) local_unnamed_addr #3

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(ptr captures(none)) #2

; Function Attrs: nounwind
define void @pool_launch(ptr noundef %0, ptr noundef %1, ptr noundef %2, i64 noundef %3) local_unnamed_addr #1 {
  %5 = load atomic i32, ptr @thread_count monotonic, align 4
  %6 = shl nsw i32 %5, 2
  %7 = sext i32 %6 to i64
  %8 = sdiv i64 %3, %7
  %9 = tail call i64 @llvm.smax.i64(i64 %8, i64 1)
  tail call fastcc void @launch_chunks(ptr noundef %0, ptr noundef %1, ptr noundef %2, i64 noundef %3, i64 noundef %9)
  ret void
}

; Function Attrs: nounwind
define internal fastcc void @launch_chunks(ptr noundef %0, ptr noundef %1, ptr noundef %2, i64 noundef %3, i64 noundef %4) unnamed_addr #1 {
  %6 = alloca %struct.__sigset_t, align 8
  %7 = alloca %struct.__sigset_t, align 8
  %8 = load atomic i32, ptr @thread_count monotonic, align 4
  %9 = icmp slt i32 %8, 2
  %10 = icmp slt i64 %3, 2
  %11 = or i1 %10, %9
  br i1 %11, label %12, label %13

12:                                               ; preds = %5
  tail call void %0(ptr noundef %1, ptr noundef %2, i64 noundef 0, i64 noundef %3) #9
  br label %95

13:                                               ; preds = %5
  %14 = cmpxchg ptr @launch_lock, i32 0, i32 1 acquire monotonic, align 4
  %15 = extractvalue { i32, i1 } %14, 1
  br i1 %15, label %23, label %16

16:                                               ; preds = %13
  %17 = atomicrmw xchg ptr @launch_lock, i32 2 acquire, align 4
  %18 = icmp eq i32 %17, 0
  br i1 %18, label %23, label %19

19:                                               ; preds = %16, %19
  %20 = tail call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull @launch_lock, i32 noundef 128, i32 noundef 2, ptr noundef null) #9
  %21 = atomicrmw xchg ptr @launch_lock, i32 2 acquire, align 4
  %22 = icmp eq i32 %21, 0
  br i1 %22, label %23, label %19, !llvm.loop !9

23:                                               ; preds = %19, %13, %16
  %24 = load i1, ptr @started, align 4
  br i1 %24, label %45, label %25

25:                                               ; preds = %23
  call void @llvm.lifetime.start.p0(ptr nonnull %6) #9
  call void @llvm.lifetime.start.p0(ptr nonnull %7) #9
  %26 = call i32 @sigfillset(ptr noundef nonnull %6) #9
  %27 = call i32 @pthread_sigmask(i32 noundef 2, ptr noundef nonnull %6, ptr noundef nonnull %7) #9
  %28 = load atomic i32, ptr @thread_count monotonic, align 4
  %29 = icmp sgt i32 %28, 1
  br i1 %29, label %30, label %42

30:                                               ; preds = %25
  %31 = zext nneg i32 %28 to i64
  br label %32

32:                                               ; preds = %37, %30
  %33 = phi i64 [ 1, %30 ], [ %38, %37 ]
  %34 = getelementptr inbounds nuw i64, ptr @workers, i64 %33
  %35 = call i32 @pthread_create(ptr noundef nonnull %34, ptr noundef null, ptr noundef nonnull @work, ptr noundef null) #9
  %36 = icmp eq i32 %35, 0
  br i1 %36, label %37, label %40

37:                                               ; preds = %32
  %38 = add nuw nsw i64 %33, 1
  %39 = icmp eq i64 %38, %31
  br i1 %39, label %42, label %32, !llvm.loop !15

40:                                               ; preds = %32
  %41 = trunc nuw nsw i64 %33 to i32
  br label %42

42:                                               ; preds = %37, %25, %40
  %43 = phi i32 [ 1, %25 ], [ %41, %40 ], [ %28, %37 ]
  store atomic i32 %43, ptr @thread_count monotonic, align 4
  store i1 true, ptr @started, align 4
  %44 = call i32 @pthread_sigmask(i32 noundef 2, ptr noundef nonnull %7, ptr noundef null) #9
  call void @llvm.lifetime.end.p0(ptr nonnull %7) #9
  call void @llvm.lifetime.end.p0(ptr nonnull %6) #9
  br label %45

45:                                               ; preds = %42, %23
  store ptr %0, ptr @job.0, align 64, !tbaa !16
  store ptr %1, ptr @job.1, align 8, !tbaa !19
  store ptr %2, ptr @job.2, align 16, !tbaa !20
  store i64 %3, ptr @job.3, align 8, !tbaa !21
  store i64 %4, ptr @job.4, align 32, !tbaa !22
  store atomic i64 0, ptr @next monotonic, align 64
  %46 = load atomic i64, ptr @gate monotonic, align 64
  %47 = and i64 %46, -4294967296
  %48 = add i64 %47, 5368709120
  store atomic i64 %48, ptr @gate seq_cst, align 64
  %49 = load atomic i32, ptr @sleepers seq_cst, align 64
  %50 = icmp sgt i32 %49, 0
  br i1 %50, label %51, label %54

51:                                               ; preds = %45
  %52 = call i32 @llvm.umin.i32(i32 %49, i32 4)
  %53 = call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @gate, i64 4), i32 noundef 129, i32 noundef range(i32 1, -2147483648) %52) #9
  br label %54

54:                                               ; preds = %45, %51
  %55 = load i64, ptr @job.3, align 8, !tbaa !21
  %56 = load i64, ptr @job.4, align 32, !tbaa !22
  %57 = atomicrmw add ptr @next, i64 %56 monotonic, align 64
  %58 = icmp slt i64 %57, %55
  br i1 %58, label %59, label %68

59:                                               ; preds = %54, %59
  %60 = phi i64 [ %66, %59 ], [ %57, %54 ]
  %61 = add nsw i64 %60, %56
  %62 = load ptr, ptr @job.0, align 64, !tbaa !16
  %63 = load ptr, ptr @job.1, align 8, !tbaa !19
  %64 = load ptr, ptr @job.2, align 16, !tbaa !20
  %65 = call i64 @llvm.smin.i64(i64 %61, i64 %55)
  call void %62(ptr noundef %63, ptr noundef %64, i64 noundef %60, i64 noundef %65) #9
  %66 = atomicrmw add ptr @next, i64 %56 monotonic, align 64
  %67 = icmp slt i64 %66, %55
  br i1 %67, label %59, label %68, !llvm.loop !23

68:                                               ; preds = %59, %54
  %69 = atomicrmw and ptr @gate, i64 -1073741825 acq_rel, align 64
  br label %70

70:                                               ; preds = %75, %68
  %71 = phi i32 [ 0, %68 ], [ %76, %75 ]
  %72 = load atomic i64, ptr @gate acquire, align 64
  %73 = and i64 %72, 4294967295
  %74 = icmp eq i64 %73, 0
  br i1 %74, label %90, label %75

75:                                               ; preds = %70
  call void @llvm.aarch64.hint(i32 1)
  %76 = add nuw nsw i32 %71, 1
  %77 = icmp eq i32 %76, 2000
  br i1 %77, label %78, label %70, !llvm.loop !24

78:                                               ; preds = %75
  %79 = atomicrmw or ptr @gate, i64 2147483648 acq_rel, align 64
  %80 = load atomic i64, ptr @gate acquire, align 64
  %81 = and i64 %80, 4294967295
  %82 = icmp eq i64 %81, 2147483648
  br i1 %82, label %90, label %83

83:                                               ; preds = %78, %83
  %84 = phi i64 [ %87, %83 ], [ %80, %78 ]
  %85 = trunc i64 %84 to i32
  %86 = call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull @gate, i32 noundef 128, i32 noundef %85, ptr noundef null) #9
  %87 = load atomic i64, ptr @gate acquire, align 64
  %88 = and i64 %87, 4294967295
  %89 = icmp eq i64 %88, 2147483648
  br i1 %89, label %90, label %83

90:                                               ; preds = %70, %83, %78
  %91 = atomicrmw xchg ptr @launch_lock, i32 0 release, align 4
  %92 = icmp eq i32 %91, 2
  br i1 %92, label %93, label %95

93:                                               ; preds = %90
  %94 = call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull @launch_lock, i32 noundef 129, i32 noundef 1) #9
  br label %95

95:                                               ; preds = %93, %90, %12
  ret void
}

; Function Attrs: nounwind
define void @replay_run(ptr noundef %0, ptr noundef writeonly captures(address_is_null) %1) local_unnamed_addr #1 {
  %3 = alloca %struct.timespec, align 8
  %4 = alloca %struct.timespec, align 8
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %6 = load i64, ptr %5, align 8, !tbaa !25
  %7 = icmp sgt i64 %6, 0
  br i1 %7, label %8, label %17

8:                                                ; preds = %2
  %9 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %10 = load ptr, ptr %9, align 8, !tbaa !32
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %12 = load ptr, ptr %11, align 8, !tbaa !33
  %13 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %14 = load ptr, ptr %13, align 8, !tbaa !34
  %15 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %16 = load ptr, ptr %15, align 8, !tbaa !35
  br label %28

17:                                               ; preds = %28, %2
  %18 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %19 = load i64, ptr %18, align 8, !tbaa !36
  %20 = icmp sgt i64 %19, 0
  br i1 %20, label %21, label %50

21:                                               ; preds = %17
  %22 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %23 = load ptr, ptr %22, align 8, !tbaa !37
  %24 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %25 = load ptr, ptr %24, align 8, !tbaa !38
  %26 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %27 = load ptr, ptr %26, align 8, !tbaa !39
  br label %40

28:                                               ; preds = %28, %8
  %29 = phi i64 [ 0, %8 ], [ %38, %28 ]
  %30 = getelementptr inbounds nuw i64, ptr %12, i64 %29
  %31 = load i64, ptr %30, align 8, !tbaa !12
  %32 = getelementptr inbounds ptr, ptr %10, i64 %31
  %33 = load ptr, ptr %32, align 8, !tbaa !40
  %34 = getelementptr inbounds nuw i64, ptr %14, i64 %29
  %35 = load i64, ptr %34, align 8, !tbaa !12
  %36 = getelementptr inbounds i8, ptr %33, i64 %35
  %37 = getelementptr inbounds nuw ptr, ptr %16, i64 %29
  store ptr %36, ptr %37, align 8, !tbaa !40
  %38 = add nuw nsw i64 %29, 1
  %39 = icmp eq i64 %38, %6
  br i1 %39, label %17, label %28, !llvm.loop !42

40:                                               ; preds = %40, %21
  %41 = phi i64 [ 0, %21 ], [ %47, %40 ]
  %42 = getelementptr inbounds nuw i64, ptr %25, i64 %41
  %43 = load i64, ptr %42, align 8, !tbaa !12
  %44 = getelementptr inbounds i64, ptr %23, i64 %43
  %45 = load i64, ptr %44, align 8, !tbaa !12
  %46 = getelementptr inbounds nuw i64, ptr %27, i64 %41
  store i64 %45, ptr %46, align 8, !tbaa !12
  %47 = add nuw nsw i64 %41, 1
  %48 = load i64, ptr %18, align 8, !tbaa !36
  %49 = icmp slt i64 %47, %48
  br i1 %49, label %40, label %50, !llvm.loop !43

50:                                               ; preds = %40, %17
  %51 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %52 = load i64, ptr %51, align 8, !tbaa !44
  %53 = icmp sgt i64 %52, 0
  br i1 %53, label %54, label %58

54:                                               ; preds = %50
  %55 = icmp eq ptr %1, null
  %56 = getelementptr inbounds nuw i8, ptr %4, i64 8
  %57 = getelementptr inbounds nuw i8, ptr %3, i64 8
  br label %59

58:                                               ; preds = %78, %50
  ret void

59:                                               ; preds = %54, %78
  %60 = phi i64 [ 0, %54 ], [ %79, %78 ]
  br i1 %55, label %75, label %61

61:                                               ; preds = %59
  call void @llvm.lifetime.start.p0(ptr nonnull %4) #9
  %62 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %4) #9
  %63 = load i64, ptr %4, align 8, !tbaa !45
  %64 = load i64, ptr %56, align 8, !tbaa !47
  call void @llvm.lifetime.end.p0(ptr nonnull %4) #9
  %65 = load ptr, ptr %0, align 8, !tbaa !48
  %66 = getelementptr inbounds nuw %struct.record, ptr %65, i64 %60
  call fastcc void @run_record(ptr noundef nonnull %0, ptr noundef %66)
  call void @llvm.lifetime.start.p0(ptr nonnull %3) #9
  %67 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %3) #9
  %68 = load i64, ptr %3, align 8, !tbaa !45
  %69 = load i64, ptr %57, align 8, !tbaa !47
  call void @llvm.lifetime.end.p0(ptr nonnull %3) #9
  %70 = sub i64 %68, %63
  %71 = mul i64 %70, 1000000000
  %72 = sub i64 %69, %64
  %73 = add i64 %72, %71
  %74 = getelementptr inbounds nuw i64, ptr %1, i64 %60
  store i64 %73, ptr %74, align 8, !tbaa !12
  br label %78

75:                                               ; preds = %59
  %76 = load ptr, ptr %0, align 8, !tbaa !48
  %77 = getelementptr inbounds nuw %struct.record, ptr %76, i64 %60
  call fastcc void @run_record(ptr noundef nonnull %0, ptr noundef %77)
  br label %78

78:                                               ; preds = %75, %61
  %79 = add nuw nsw i64 %60, 1
  %80 = load i64, ptr %51, align 8, !tbaa !44
  %81 = icmp slt i64 %79, %80
  br i1 %81, label %59, label %58, !llvm.loop !49
}

; Function Attrs: nounwind
define internal fastcc void @run_record(ptr noundef %0, ptr noundef %1) unnamed_addr #1 {
  %3 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %4 = load i64, ptr %3, align 8, !tbaa !50
  %5 = icmp sgt i64 %4, 1
  br i1 %5, label %6, label %60

6:                                                ; preds = %2
  %7 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %8 = load i64, ptr %7, align 8, !tbaa !52
  %9 = icmp eq i64 %8, 0
  %10 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %11 = load i64, ptr %10, align 8, !tbaa !53
  br i1 %9, label %13, label %12

12:                                               ; preds = %6
  tail call fastcc void @launch_chunks(ptr noundef nonnull @run_pieces, ptr noundef %0, ptr noundef nonnull %1, i64 noundef %11, i64 noundef 1)
  br label %92

13:                                               ; preds = %6
  %14 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %15 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %16 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %17 = getelementptr inbounds nuw i8, ptr %0, i64 64
  br label %18

18:                                               ; preds = %56, %13
  %19 = phi i64 [ %4, %13 ], [ %57, %56 ]
  %20 = phi i64 [ 0, %13 ], [ %29, %56 ]
  %21 = phi i64 [ 0, %13 ], [ %58, %56 ]
  %22 = load ptr, ptr %14, align 8, !tbaa !54
  %23 = load i64, ptr %1, align 8, !tbaa !55
  %24 = getelementptr %struct.member, ptr %22, i64 %23
  %25 = getelementptr %struct.member, ptr %24, i64 %21
  %26 = getelementptr inbounds nuw i8, ptr %25, i64 32
  %27 = load i64, ptr %26, align 8, !tbaa !56
  %28 = tail call i64 @llvm.smax.i64(i64 %20, i64 0)
  %29 = add nsw i64 %27, %20
  %30 = tail call i64 @llvm.smin.i64(i64 %11, i64 %29)
  %31 = icmp slt i64 %28, %30
  br i1 %31, label %32, label %56

32:                                               ; preds = %18
  %33 = sub nsw i64 %30, %20
  %34 = sub nsw i64 %28, %20
  %35 = load ptr, ptr %15, align 8, !tbaa !37
  %36 = getelementptr inbounds nuw i8, ptr %25, i64 24
  %37 = load i64, ptr %36, align 8, !tbaa !58
  %38 = getelementptr inbounds i64, ptr %35, i64 %37
  %39 = load i64, ptr %38, align 8, !tbaa !12
  %40 = mul nsw i64 %39, %34
  %41 = sdiv i64 %40, %27
  %42 = mul nsw i64 %39, %33
  %43 = sdiv i64 %42, %27
  %44 = icmp slt i64 %41, %43
  br i1 %44, label %45, label %56

45:                                               ; preds = %32
  %46 = load ptr, ptr %25, align 8, !tbaa !59
  %47 = load ptr, ptr %16, align 8, !tbaa !35
  %48 = getelementptr inbounds nuw i8, ptr %25, i64 8
  %49 = load i64, ptr %48, align 8, !tbaa !60
  %50 = getelementptr inbounds ptr, ptr %47, i64 %49
  %51 = load ptr, ptr %17, align 8, !tbaa !39
  %52 = getelementptr inbounds nuw i8, ptr %25, i64 16
  %53 = load i64, ptr %52, align 8, !tbaa !61
  %54 = getelementptr inbounds i64, ptr %51, i64 %53
  tail call void %46(ptr noundef %50, ptr noundef %54, i64 noundef %41, i64 noundef %43) #9
  %55 = load i64, ptr %3, align 8, !tbaa !50
  br label %56

56:                                               ; preds = %45, %32, %18
  %57 = phi i64 [ %19, %32 ], [ %55, %45 ], [ %19, %18 ]
  %58 = add nuw nsw i64 %21, 1
  %59 = icmp slt i64 %58, %57
  br i1 %59, label %18, label %92, !llvm.loop !62

60:                                               ; preds = %2
  %61 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %62 = load ptr, ptr %61, align 8, !tbaa !54
  %63 = load i64, ptr %1, align 8, !tbaa !55
  %64 = getelementptr inbounds %struct.member, ptr %62, i64 %63
  %65 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %66 = load ptr, ptr %65, align 8, !tbaa !35
  %67 = getelementptr inbounds nuw i8, ptr %64, i64 8
  %68 = load i64, ptr %67, align 8, !tbaa !60
  %69 = getelementptr inbounds ptr, ptr %66, i64 %68
  %70 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %71 = load ptr, ptr %70, align 8, !tbaa !39
  %72 = getelementptr inbounds nuw i8, ptr %64, i64 16
  %73 = load i64, ptr %72, align 8, !tbaa !61
  %74 = getelementptr inbounds i64, ptr %71, i64 %73
  %75 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %76 = load ptr, ptr %75, align 8, !tbaa !37
  %77 = getelementptr inbounds nuw i8, ptr %64, i64 24
  %78 = load i64, ptr %77, align 8, !tbaa !58
  %79 = getelementptr inbounds i64, ptr %76, i64 %78
  %80 = load i64, ptr %79, align 8, !tbaa !12
  %81 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %82 = load i64, ptr %81, align 8, !tbaa !52
  %83 = icmp eq i64 %82, 0
  %84 = load ptr, ptr %64, align 8, !tbaa !59
  br i1 %83, label %91, label %85

85:                                               ; preds = %60
  %86 = load atomic i32, ptr @thread_count monotonic, align 4
  %87 = shl nsw i32 %86, 2
  %88 = sext i32 %87 to i64
  %89 = sdiv i64 %80, %88
  %90 = tail call i64 @llvm.smax.i64(i64 %89, i64 1)
  tail call fastcc void @launch_chunks(ptr noundef %84, ptr noundef %69, ptr noundef %74, i64 noundef %80, i64 noundef %90)
  br label %92

91:                                               ; preds = %60
  tail call void %84(ptr noundef %69, ptr noundef %74, i64 noundef 0, i64 noundef %80) #9
  br label %92

92:                                               ; preds = %56, %85, %91, %12
  ret void
}

; Function Attrs: nofree norecurse nounwind
define void @copy_kernel(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, i64 noundef %2, i64 noundef %3) local_unnamed_addr #4 {
  %5 = load ptr, ptr %0, align 8, !tbaa !40
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %7 = load ptr, ptr %6, align 8, !tbaa !40
  %8 = load i64, ptr %1, align 8, !tbaa !12
  %9 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %10 = load i64, ptr %9, align 8, !tbaa !12
  %11 = mul nsw i64 %10, %2
  %12 = mul nsw i64 %10, %3
  %13 = tail call i64 @llvm.smin.i64(i64 %12, i64 %8)
  %14 = ptrtoint ptr %5 to i64
  %15 = ptrtoint ptr %7 to i64
  %16 = sub i64 %14, %15
  %17 = tail call i64 @llvm.abs.i64(i64 %16, i1 true)
  %18 = icmp sge i64 %17, %8
  %19 = getelementptr inbounds i8, ptr %5, i64 %11
  %20 = ptrtoint ptr %19 to i64
  %21 = and i64 %20, 63
  %22 = icmp eq i64 %21, 0
  %23 = icmp sgt i64 %8, 33554431
  %24 = select i1 %23, i1 %18, i1 false
  %25 = select i1 %24, i1 %22, i1 false
  br i1 %25, label %26, label %40

26:                                               ; preds = %4
  %27 = sub nsw i64 %13, %11
  %28 = and i64 %27, -64
  %29 = getelementptr inbounds i8, ptr %7, i64 %11
  %30 = icmp sgt i64 %27, 63
  br i1 %30, label %31, label %38

31:                                               ; preds = %26, %31
  %32 = phi i64 [ %36, %31 ], [ 0, %26 ]
  %33 = getelementptr inbounds nuw i8, ptr %29, i64 %32
  %34 = load <64 x i8>, ptr %33, align 1, !tbaa !63
  %35 = getelementptr inbounds nuw i8, ptr %19, i64 %32
  store <64 x i8> %34, ptr %35, align 16, !tbaa !63, !nontemporal !64
  %36 = add nuw nsw i64 %32, 64
  %37 = icmp slt i64 %36, %28
  br i1 %37, label %31, label %38, !llvm.loop !65

38:                                               ; preds = %31, %26
  %39 = add nsw i64 %28, %11
  br label %40

40:                                               ; preds = %38, %4
  %41 = phi i64 [ %39, %38 ], [ %11, %4 ]
  %42 = getelementptr inbounds i8, ptr %5, i64 %41
  %43 = getelementptr inbounds i8, ptr %7, i64 %41
  %44 = sub nsw i64 %13, %41
  tail call void @llvm.memmove.p0.p0.i64(ptr align 1 %42, ptr align 1 %43, i64 %44, i1 false)
  fence seq_cst
  ret void
}

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memmove.p0.p0.i64(ptr writeonly captures(none), ptr readonly captures(none), i64, i1 immarg) #5

; Function Attrs: nounwind
declare i64 @syscall(i64 noundef, ...) local_unnamed_addr #1

; Function Attrs: nounwind
declare i32 @sigfillset(ptr noundef) local_unnamed_addr #1

; Function Attrs: nounwind
declare i32 @pthread_sigmask(i32 noundef, ptr noundef, ptr noundef) local_unnamed_addr #1

; Function Attrs: nounwind
declare i32 @pthread_create(ptr noundef, ptr noundef, ptr noundef, ptr noundef) local_unnamed_addr #1

; Function Attrs: nounwind
define internal noalias noundef ptr @work(ptr readnone captures(none) %0) #1 {
  %2 = alloca %struct.timespec, align 8
  %3 = alloca %struct.timespec, align 8
  %4 = alloca %struct.timespec, align 8
  %5 = getelementptr inbounds nuw i8, ptr %4, i64 8
  %6 = getelementptr inbounds nuw i8, ptr %3, i64 8
  %7 = getelementptr inbounds nuw i8, ptr %2, i64 8
  br label %11

8:                                                ; preds = %59
  %9 = lshr i64 %56, 32
  %10 = trunc nuw i64 %9 to i32
  br label %92

11:                                               ; preds = %92, %1
  %12 = phi i32 [ 0, %1 ], [ %93, %92 ]
  br label %13

13:                                               ; preds = %11, %62
  %14 = load atomic i64, ptr @poll_ns monotonic, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %4) #9
  %15 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %4) #9
  %16 = load i64, ptr %4, align 8, !tbaa !45
  %17 = load i64, ptr %5, align 8, !tbaa !47
  call void @llvm.lifetime.end.p0(ptr nonnull %4) #9
  %18 = load atomic i64, ptr @gate acquire, align 64
  %19 = lshr i64 %18, 32
  %20 = trunc nuw i64 %19 to i32
  %21 = icmp eq i32 %12, %20
  br i1 %21, label %22, label %55

22:                                               ; preds = %13
  %23 = add i64 %17, %14
  %24 = mul nsw i64 %16, 1000000000
  %25 = add i64 %23, %24
  br label %26

26:                                               ; preds = %48, %22
  %27 = phi i64 [ %25, %22 ], [ %49, %48 ]
  %28 = phi i32 [ 1, %22 ], [ %50, %48 ]
  call void @llvm.aarch64.hint(i32 1)
  %29 = and i32 %28, 31
  %30 = icmp eq i32 %29, 0
  br i1 %30, label %31, label %48

31:                                               ; preds = %26
  call void @llvm.lifetime.start.p0(ptr nonnull %3) #9
  %32 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %3) #9
  %33 = load i64, ptr %3, align 8, !tbaa !45
  %34 = mul nsw i64 %33, 1000000000
  %35 = load i64, ptr %6, align 8, !tbaa !47
  %36 = add nsw i64 %34, %35
  call void @llvm.lifetime.end.p0(ptr nonnull %3) #9
  %37 = icmp sgt i64 %36, %27
  br i1 %37, label %38, label %48

38:                                               ; preds = %31
  %39 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 64
  %40 = call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @gate, i64 4), i32 noundef 128, i32 noundef %12, ptr noundef null) #9
  %41 = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 64
  call void @llvm.lifetime.start.p0(ptr nonnull %2) #9
  %42 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %2) #9
  %43 = load i64, ptr %2, align 8, !tbaa !45
  %44 = mul nsw i64 %43, 1000000000
  %45 = load i64, ptr %7, align 8, !tbaa !47
  call void @llvm.lifetime.end.p0(ptr nonnull %2) #9
  %46 = add i64 %45, %14
  %47 = add i64 %46, %44
  br label %48

48:                                               ; preds = %38, %31, %26
  %49 = phi i64 [ %27, %26 ], [ %27, %31 ], [ %47, %38 ]
  %50 = add i32 %28, 1
  %51 = load atomic i64, ptr @gate acquire, align 64
  %52 = lshr i64 %51, 32
  %53 = trunc nuw i64 %52 to i32
  %54 = icmp eq i32 %12, %53
  br i1 %54, label %26, label %55, !llvm.loop !66

55:                                               ; preds = %48, %13
  %56 = phi i64 [ %18, %13 ], [ %51, %48 ]
  %57 = load atomic i32, ptr @stopping acquire, align 4
  %58 = icmp eq i32 %57, 0
  br i1 %58, label %59, label %96

59:                                               ; preds = %55
  %60 = and i64 %56, 1073741824
  %61 = icmp eq i64 %60, 0
  br i1 %61, label %8, label %62

62:                                               ; preds = %59
  %63 = add i64 %56, 1
  %64 = cmpxchg ptr @gate, i64 %56, i64 %63 acq_rel monotonic, align 64
  %65 = extractvalue { i64, i1 } %64, 1
  br i1 %65, label %66, label %13, !llvm.loop !67

66:                                               ; preds = %62
  %67 = lshr i64 %56, 32
  %68 = trunc nuw i64 %67 to i32
  %69 = load atomic i32, ptr @sleepers seq_cst, align 64
  %70 = icmp sgt i32 %69, 0
  br i1 %70, label %71, label %74

71:                                               ; preds = %66
  %72 = call i32 @llvm.umin.i32(i32 %69, i32 4)
  %73 = call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @gate, i64 4), i32 noundef 129, i32 noundef range(i32 1, -2147483648) %72) #9
  br label %74

74:                                               ; preds = %66, %71
  %75 = load i64, ptr @job.3, align 8, !tbaa !21
  %76 = load i64, ptr @job.4, align 32, !tbaa !22
  %77 = atomicrmw add ptr @next, i64 %76 monotonic, align 64
  %78 = icmp slt i64 %77, %75
  br i1 %78, label %79, label %88

79:                                               ; preds = %74, %79
  %80 = phi i64 [ %86, %79 ], [ %77, %74 ]
  %81 = add nsw i64 %80, %76
  %82 = load ptr, ptr @job.0, align 64, !tbaa !16
  %83 = load ptr, ptr @job.1, align 8, !tbaa !19
  %84 = load ptr, ptr @job.2, align 16, !tbaa !20
  %85 = call i64 @llvm.smin.i64(i64 %81, i64 %75)
  call void %82(ptr noundef %83, ptr noundef %84, i64 noundef %80, i64 noundef %85) #9
  %86 = atomicrmw add ptr @next, i64 %76 monotonic, align 64
  %87 = icmp slt i64 %86, %75
  br i1 %87, label %79, label %88, !llvm.loop !23

88:                                               ; preds = %79, %74
  %89 = atomicrmw sub ptr @gate, i64 1 acq_rel, align 64
  %90 = and i64 %89, 4294967295
  %91 = icmp eq i64 %90, 2147483649
  br i1 %91, label %94, label %92

92:                                               ; preds = %88, %94, %8
  %93 = phi i32 [ %68, %88 ], [ %68, %94 ], [ %10, %8 ]
  br label %11

94:                                               ; preds = %88
  %95 = call i64 (i64, ...) @syscall(i64 noundef 98, ptr noundef nonnull @gate, i32 noundef 129, i32 noundef 1) #9
  br label %92

96:                                               ; preds = %55
  ret ptr null
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn
declare void @llvm.aarch64.hint(i32) #6

; Function Attrs: nounwind
declare i32 @clock_gettime(i32 noundef, ptr noundef) local_unnamed_addr #1

; Function Attrs: nounwind
define internal void @run_pieces(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, i64 noundef %2, i64 noundef %3) #1 {
  %5 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %6 = load i64, ptr %5, align 8, !tbaa !50
  %7 = icmp sgt i64 %6, 0
  br i1 %7, label %8, label %13

8:                                                ; preds = %4
  %9 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %10 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %12 = getelementptr inbounds nuw i8, ptr %0, i64 64
  br label %14

13:                                               ; preds = %52, %4
  ret void

14:                                               ; preds = %8, %52
  %15 = phi i64 [ %6, %8 ], [ %53, %52 ]
  %16 = phi i64 [ 0, %8 ], [ %25, %52 ]
  %17 = phi i64 [ 0, %8 ], [ %54, %52 ]
  %18 = load ptr, ptr %9, align 8, !tbaa !54
  %19 = load i64, ptr %1, align 8, !tbaa !55
  %20 = getelementptr %struct.member, ptr %18, i64 %19
  %21 = getelementptr %struct.member, ptr %20, i64 %17
  %22 = getelementptr inbounds nuw i8, ptr %21, i64 32
  %23 = load i64, ptr %22, align 8, !tbaa !56
  %24 = tail call i64 @llvm.smax.i64(i64 %2, i64 %16)
  %25 = add nsw i64 %23, %16
  %26 = tail call i64 @llvm.smin.i64(i64 %3, i64 %25)
  %27 = icmp slt i64 %24, %26
  br i1 %27, label %28, label %52

28:                                               ; preds = %14
  %29 = sub nsw i64 %26, %16
  %30 = sub nsw i64 %24, %16
  %31 = load ptr, ptr %10, align 8, !tbaa !37
  %32 = getelementptr inbounds nuw i8, ptr %21, i64 24
  %33 = load i64, ptr %32, align 8, !tbaa !58
  %34 = getelementptr inbounds i64, ptr %31, i64 %33
  %35 = load i64, ptr %34, align 8, !tbaa !12
  %36 = mul nsw i64 %35, %30
  %37 = sdiv i64 %36, %23
  %38 = mul nsw i64 %35, %29
  %39 = sdiv i64 %38, %23
  %40 = icmp slt i64 %37, %39
  br i1 %40, label %41, label %52

41:                                               ; preds = %28
  %42 = load ptr, ptr %21, align 8, !tbaa !59
  %43 = load ptr, ptr %11, align 8, !tbaa !35
  %44 = getelementptr inbounds nuw i8, ptr %21, i64 8
  %45 = load i64, ptr %44, align 8, !tbaa !60
  %46 = getelementptr inbounds ptr, ptr %43, i64 %45
  %47 = load ptr, ptr %12, align 8, !tbaa !39
  %48 = getelementptr inbounds nuw i8, ptr %21, i64 16
  %49 = load i64, ptr %48, align 8, !tbaa !61
  %50 = getelementptr inbounds i64, ptr %47, i64 %49
  tail call void %42(ptr noundef %46, ptr noundef %50, i64 noundef %37, i64 noundef %39) #9
  %51 = load i64, ptr %5, align 8, !tbaa !50
  br label %52

52:                                               ; preds = %28, %41, %14
  %53 = phi i64 [ %15, %28 ], [ %51, %41 ], [ %15, %14 ]
  %54 = add nuw nsw i64 %17, 1
  %55 = icmp slt i64 %54, %53
  br i1 %55, label %14, label %13, !llvm.loop !62
}

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.smin.i32(i32, i32) #7

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smax.i64(i64, i64) #7

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.abs.i64(i64, i1 immarg) #8

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smin.i64(i64, i64) #7

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.umin.i32(i32, i32) #7

attributes #0 = { mustprogress nofree norecurse nounwind willreturn memory(readwrite, argmem: none, inaccessiblemem: none, target_mem0: none, target_mem1: none) "no-trapping-math"="true" }
attributes #1 = { nounwind "no-trapping-math"="true" }
attributes #2 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #3 = { "no-trapping-math"="true" }
attributes #4 = { nofree norecurse nounwind "no-trapping-math"="true" }
attributes #5 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #6 = { mustprogress nocallback nofree nosync nounwind willreturn }
attributes #7 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #8 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #9 = { nounwind }

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
!9 = distinct !{!9, !10, !11}
!10 = !{!"llvm.loop.mustprogress"}
!11 = !{!"llvm.loop.unroll.disable"}
!12 = !{!13, !13, i64 0}
!13 = !{!"long", !7, i64 0}
!14 = distinct !{!14, !10, !11}
!15 = distinct !{!15, !10, !11}
!16 = !{!17, !18, i64 0}
!17 = !{!"", !18, i64 0, !18, i64 8, !18, i64 16, !13, i64 24, !13, i64 32}
!18 = !{!"any pointer", !7, i64 0}
!19 = !{!17, !18, i64 8}
!20 = !{!17, !18, i64 16}
!21 = !{!17, !13, i64 24}
!22 = !{!17, !13, i64 32}
!23 = distinct !{!23, !11}
!24 = distinct !{!24, !10, !11}
!25 = !{!26, !13, i64 56}
!26 = !{!"table", !27, i64 0, !13, i64 8, !28, i64 16, !29, i64 24, !31, i64 32, !31, i64 40, !29, i64 48, !13, i64 56, !31, i64 64, !31, i64 72, !31, i64 80, !13, i64 88}
!27 = !{!"p1 _ZTS6record", !18, i64 0}
!28 = !{!"p1 _ZTS6member", !18, i64 0}
!29 = !{!"p2 omnipotent char", !30, i64 0}
!30 = !{!"any p2 pointer", !18, i64 0}
!31 = !{!"p1 long", !18, i64 0}
!32 = !{!26, !29, i64 48}
!33 = !{!26, !31, i64 32}
!34 = !{!26, !31, i64 40}
!35 = !{!26, !29, i64 24}
!36 = !{!26, !13, i64 88}
!37 = !{!26, !31, i64 80}
!38 = !{!26, !31, i64 72}
!39 = !{!26, !31, i64 64}
!40 = !{!41, !41, i64 0}
!41 = !{!"p1 omnipotent char", !18, i64 0}
!42 = distinct !{!42, !10, !11}
!43 = distinct !{!43, !10, !11}
!44 = !{!26, !13, i64 8}
!45 = !{!46, !13, i64 0}
!46 = !{!"timespec", !13, i64 0, !13, i64 8}
!47 = !{!46, !13, i64 8}
!48 = !{!26, !27, i64 0}
!49 = distinct !{!49, !10, !11}
!50 = !{!51, !13, i64 8}
!51 = !{!"record", !13, i64 0, !13, i64 8, !13, i64 16, !13, i64 24}
!52 = !{!51, !13, i64 24}
!53 = !{!51, !13, i64 16}
!54 = !{!26, !28, i64 16}
!55 = !{!51, !13, i64 0}
!56 = !{!57, !13, i64 32}
!57 = !{!"member", !18, i64 0, !13, i64 8, !13, i64 16, !13, i64 24, !13, i64 32}
!58 = !{!57, !13, i64 24}
!59 = !{!57, !18, i64 0}
!60 = !{!57, !13, i64 8}
!61 = !{!57, !13, i64 16}
!62 = distinct !{!62, !10, !11}
!63 = !{!7, !7, i64 0}
!64 = !{i32 1}
!65 = distinct !{!65, !10, !11}
!66 = distinct !{!66, !11}
!67 = distinct !{!67, !11}
