; runtime.c for aarch64-macos, written by build.py with clang 22.1.8

%union.anon = type { i64, [56 x i8] }
%union.anon.0 = type { i32, [60 x i8] }
%union.anon.1 = type { i32, [60 x i8] }
%struct._opaque_pthread_mutex_t = type { i64, [56 x i8] }
%struct._opaque_pthread_cond_t = type { i64, [40 x i8] }
%union.anon.3 = type { i64, [56 x i8] }
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
@workers = internal global [1024 x ptr] zeroinitializer, align 8
@sleep_mutex = internal global %struct._opaque_pthread_mutex_t zeroinitializer, align 8
@sleep_condition = internal global %struct._opaque_pthread_cond_t zeroinitializer, align 8
@job.0 = internal unnamed_addr global ptr null, align 64
@job.1 = internal unnamed_addr global ptr null, align 8
@job.2 = internal unnamed_addr global ptr null, align 16
@job.3 = internal unnamed_addr global i64 0, align 8
@job.4 = internal unnamed_addr global i64 0, align 32
@next = internal global %union.anon.3 zeroinitializer, align 64

; Function Attrs: nounwind
define void @pool_reset(i32 noundef %0, i64 noundef %1) local_unnamed_addr #0 {
  %3 = tail call i32 @pthread_mutex_init(ptr noundef nonnull @sleep_mutex, ptr noundef null) #8
  %4 = tail call i32 @"\01_pthread_cond_init"(ptr noundef nonnull @sleep_condition, ptr noundef null) #8
  store atomic i64 0, ptr @gate seq_cst, align 64
  store atomic i32 0, ptr @sleepers seq_cst, align 64
  store atomic i32 0, ptr @launch_lock seq_cst, align 64
  store atomic i32 0, ptr @stopping seq_cst, align 4
  %5 = tail call i32 @llvm.smin.i32(i32 %0, i32 1024)
  store atomic i32 %5, ptr @thread_count seq_cst, align 4
  store atomic i64 %1, ptr @poll_ns seq_cst, align 8
  store i1 false, ptr @started, align 4
  ret void
}

; Function Attrs: nounwind
define void @pool_stop() local_unnamed_addr #0 {
  %1 = cmpxchg ptr @launch_lock, i32 0, i32 1 acquire monotonic, align 4
  %2 = extractvalue { i32, i1 } %1, 1
  br i1 %2, label %18, label %3

3:                                                ; preds = %0
  %4 = atomicrmw xchg ptr @launch_lock, i32 2 acquire, align 4
  %5 = icmp eq i32 %4, 0
  br i1 %5, label %18, label %6

6:                                                ; preds = %3, %14
  %7 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %8 = load atomic i32, ptr @launch_lock seq_cst, align 64
  %9 = icmp eq i32 %8, 2
  br i1 %9, label %10, label %14

10:                                               ; preds = %6, %10
  %11 = tail call i32 @"\01_pthread_cond_wait"(ptr noundef nonnull @sleep_condition, ptr noundef nonnull @sleep_mutex) #8
  %12 = load atomic i32, ptr @launch_lock seq_cst, align 64
  %13 = icmp eq i32 %12, 2
  br i1 %13, label %10, label %14, !llvm.loop !9

14:                                               ; preds = %10, %6
  %15 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  %16 = atomicrmw xchg ptr @launch_lock, i32 2 acquire, align 4
  %17 = icmp eq i32 %16, 0
  br i1 %17, label %18, label %6, !llvm.loop !12

18:                                               ; preds = %14, %0, %3
  %19 = load i1, ptr @started, align 4
  br i1 %19, label %20, label %22

20:                                               ; preds = %18
  %21 = load atomic i32, ptr @thread_count monotonic, align 4
  br label %22

22:                                               ; preds = %18, %20
  %23 = phi i32 [ %21, %20 ], [ 1, %18 ]
  store i1 false, ptr @started, align 4
  store atomic i32 1, ptr @thread_count monotonic, align 4
  store atomic i32 1, ptr @stopping release, align 4
  %24 = atomicrmw add ptr @gate, i64 4294967296 seq_cst, align 64
  %25 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %26 = tail call i32 @pthread_cond_broadcast(ptr noundef nonnull @sleep_condition) #8
  %27 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  %28 = icmp sgt i32 %23, 1
  br i1 %28, label %29, label %31

29:                                               ; preds = %22
  %30 = zext nneg i32 %23 to i64
  br label %39

31:                                               ; preds = %39, %22
  %32 = atomicrmw xchg ptr @launch_lock, i32 0 release, align 4
  %33 = icmp eq i32 %32, 2
  br i1 %33, label %34, label %38

34:                                               ; preds = %31
  %35 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %36 = tail call i32 @pthread_cond_broadcast(ptr noundef nonnull @sleep_condition) #8
  %37 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  br label %38

38:                                               ; preds = %31, %34
  ret void

39:                                               ; preds = %29, %39
  %40 = phi i64 [ 1, %29 ], [ %44, %39 ]
  %41 = getelementptr inbounds nuw ptr, ptr @workers, i64 %40
  %42 = load ptr, ptr %41, align 8, !tbaa !13
  %43 = tail call i32 @"\01_pthread_join"(ptr noundef %42, ptr noundef null) #8
  %44 = add nuw nsw i64 %40, 1
  %45 = icmp eq i64 %44, %30
  br i1 %45, label %31, label %39, !llvm.loop !16
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(ptr captures(none)) #1

declare i32 @"\01_pthread_join"(ptr noundef, ptr noundef) local_unnamed_addr #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(ptr captures(none)) #1

; Function Attrs: nounwind
define void @pool_launch(ptr noundef %0, ptr noundef %1, ptr noundef %2, i64 noundef %3) local_unnamed_addr #0 {
  %5 = load atomic i32, ptr @thread_count monotonic, align 4
  %6 = shl nsw i32 %5, 2
  %7 = sext i32 %6 to i64
  %8 = sdiv i64 %3, %7
  %9 = tail call i64 @llvm.smax.i64(i64 %8, i64 1)
  tail call fastcc void @launch_chunks(ptr noundef %0, ptr noundef %1, ptr noundef %2, i64 noundef %3, i64 noundef %9)
  ret void
}

; Function Attrs: nounwind
define internal fastcc void @launch_chunks(ptr noundef %0, ptr noundef %1, ptr noundef %2, i64 noundef %3, i64 noundef %4) unnamed_addr #0 {
  %6 = alloca i32, align 4
  %7 = alloca i32, align 4
  %8 = load atomic i32, ptr @thread_count monotonic, align 4
  %9 = icmp slt i32 %8, 2
  %10 = icmp slt i64 %3, 2
  %11 = or i1 %10, %9
  br i1 %11, label %12, label %13

12:                                               ; preds = %5
  tail call void %0(ptr noundef %1, ptr noundef %2, i64 noundef 0, i64 noundef %3) #8
  br label %113

13:                                               ; preds = %5
  %14 = cmpxchg ptr @launch_lock, i32 0, i32 1 acquire monotonic, align 4
  %15 = extractvalue { i32, i1 } %14, 1
  br i1 %15, label %31, label %16

16:                                               ; preds = %13
  %17 = atomicrmw xchg ptr @launch_lock, i32 2 acquire, align 4
  %18 = icmp eq i32 %17, 0
  br i1 %18, label %31, label %19

19:                                               ; preds = %16, %27
  %20 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %21 = load atomic i32, ptr @launch_lock seq_cst, align 64
  %22 = icmp eq i32 %21, 2
  br i1 %22, label %23, label %27

23:                                               ; preds = %19, %23
  %24 = tail call i32 @"\01_pthread_cond_wait"(ptr noundef nonnull @sleep_condition, ptr noundef nonnull @sleep_mutex) #8
  %25 = load atomic i32, ptr @launch_lock seq_cst, align 64
  %26 = icmp eq i32 %25, 2
  br i1 %26, label %23, label %27, !llvm.loop !9

27:                                               ; preds = %23, %19
  %28 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  %29 = atomicrmw xchg ptr @launch_lock, i32 2 acquire, align 4
  %30 = icmp eq i32 %29, 0
  br i1 %30, label %31, label %19, !llvm.loop !12

31:                                               ; preds = %27, %13, %16
  %32 = load i1, ptr @started, align 4
  br i1 %32, label %52, label %33

33:                                               ; preds = %31
  call void @llvm.lifetime.start.p0(ptr nonnull %6) #8
  call void @llvm.lifetime.start.p0(ptr nonnull %7) #8
  store i32 -1, ptr %6, align 4, !tbaa !5
  %34 = call i32 @"\01_pthread_sigmask"(i32 noundef 3, ptr noundef nonnull %6, ptr noundef nonnull %7) #8
  %35 = load atomic i32, ptr @thread_count monotonic, align 4
  %36 = icmp sgt i32 %35, 1
  br i1 %36, label %37, label %49

37:                                               ; preds = %33
  %38 = zext nneg i32 %35 to i64
  br label %39

39:                                               ; preds = %44, %37
  %40 = phi i64 [ 1, %37 ], [ %45, %44 ]
  %41 = getelementptr inbounds nuw ptr, ptr @workers, i64 %40
  %42 = call i32 @pthread_create(ptr noundef nonnull %41, ptr noundef null, ptr noundef nonnull @work, ptr noundef null) #8
  %43 = icmp eq i32 %42, 0
  br i1 %43, label %44, label %47

44:                                               ; preds = %39
  %45 = add nuw nsw i64 %40, 1
  %46 = icmp eq i64 %45, %38
  br i1 %46, label %49, label %39, !llvm.loop !17

47:                                               ; preds = %39
  %48 = trunc nuw nsw i64 %40 to i32
  br label %49

49:                                               ; preds = %44, %33, %47
  %50 = phi i32 [ 1, %33 ], [ %48, %47 ], [ %35, %44 ]
  store atomic i32 %50, ptr @thread_count monotonic, align 4
  store i1 true, ptr @started, align 4
  %51 = call i32 @"\01_pthread_sigmask"(i32 noundef 3, ptr noundef nonnull %7, ptr noundef null) #8
  call void @llvm.lifetime.end.p0(ptr nonnull %7) #8
  call void @llvm.lifetime.end.p0(ptr nonnull %6) #8
  br label %52

52:                                               ; preds = %49, %31
  store ptr %0, ptr @job.0, align 64, !tbaa !18
  store ptr %1, ptr @job.1, align 8, !tbaa !21
  store ptr %2, ptr @job.2, align 16, !tbaa !22
  store i64 %3, ptr @job.3, align 8, !tbaa !23
  store i64 %4, ptr @job.4, align 32, !tbaa !24
  store atomic i64 0, ptr @next monotonic, align 64
  %53 = load atomic i64, ptr @gate monotonic, align 64
  %54 = and i64 %53, -4294967296
  %55 = add i64 %54, 5368709120
  store atomic i64 %55, ptr @gate seq_cst, align 64
  %56 = load atomic i32, ptr @sleepers seq_cst, align 64
  %57 = icmp sgt i32 %56, 0
  br i1 %57, label %58, label %62

58:                                               ; preds = %52
  %59 = call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %60 = call i32 @pthread_cond_broadcast(ptr noundef nonnull @sleep_condition) #8
  %61 = call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  br label %62

62:                                               ; preds = %52, %58
  %63 = load i64, ptr @job.3, align 8, !tbaa !23
  %64 = load i64, ptr @job.4, align 32, !tbaa !24
  %65 = atomicrmw add ptr @next, i64 %64 monotonic, align 64
  %66 = icmp slt i64 %65, %63
  br i1 %66, label %67, label %76

67:                                               ; preds = %62, %67
  %68 = phi i64 [ %74, %67 ], [ %65, %62 ]
  %69 = add nsw i64 %68, %64
  %70 = load ptr, ptr @job.0, align 64, !tbaa !18
  %71 = load ptr, ptr @job.1, align 8, !tbaa !21
  %72 = load ptr, ptr @job.2, align 16, !tbaa !22
  %73 = call i64 @llvm.smin.i64(i64 %69, i64 %63)
  call void %70(ptr noundef %71, ptr noundef %72, i64 noundef %68, i64 noundef %73) #8
  %74 = atomicrmw add ptr @next, i64 %64 monotonic, align 64
  %75 = icmp slt i64 %74, %63
  br i1 %75, label %67, label %76, !llvm.loop !25

76:                                               ; preds = %67, %62
  %77 = atomicrmw and ptr @gate, i64 -1073741825 acq_rel, align 64
  br label %78

78:                                               ; preds = %83, %76
  %79 = phi i32 [ 0, %76 ], [ %84, %83 ]
  %80 = load atomic i64, ptr @gate acquire, align 64
  %81 = and i64 %80, 4294967295
  %82 = icmp eq i64 %81, 0
  br i1 %82, label %106, label %83

83:                                               ; preds = %78
  call void @llvm.aarch64.hint(i32 1)
  %84 = add nuw nsw i32 %79, 1
  %85 = icmp eq i32 %84, 2000
  br i1 %85, label %86, label %78, !llvm.loop !26

86:                                               ; preds = %83
  %87 = atomicrmw or ptr @gate, i64 2147483648 acq_rel, align 64
  %88 = load atomic i64, ptr @gate acquire, align 64
  %89 = and i64 %88, 4294967295
  %90 = icmp eq i64 %89, 2147483648
  br i1 %90, label %106, label %91

91:                                               ; preds = %86, %101
  %92 = phi i64 [ %103, %101 ], [ %88, %86 ]
  %93 = trunc i64 %92 to i32
  %94 = call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %95 = load atomic i32, ptr @gate seq_cst, align 64
  %96 = icmp eq i32 %95, %93
  br i1 %96, label %97, label %101

97:                                               ; preds = %91, %97
  %98 = call i32 @"\01_pthread_cond_wait"(ptr noundef nonnull @sleep_condition, ptr noundef nonnull @sleep_mutex) #8
  %99 = load atomic i32, ptr @gate seq_cst, align 64
  %100 = icmp eq i32 %99, %93
  br i1 %100, label %97, label %101, !llvm.loop !9

101:                                              ; preds = %97, %91
  %102 = call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  %103 = load atomic i64, ptr @gate acquire, align 64
  %104 = and i64 %103, 4294967295
  %105 = icmp eq i64 %104, 2147483648
  br i1 %105, label %106, label %91

106:                                              ; preds = %78, %101, %86
  %107 = atomicrmw xchg ptr @launch_lock, i32 0 release, align 4
  %108 = icmp eq i32 %107, 2
  br i1 %108, label %109, label %113

109:                                              ; preds = %106
  %110 = call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %111 = call i32 @pthread_cond_broadcast(ptr noundef nonnull @sleep_condition) #8
  %112 = call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  br label %113

113:                                              ; preds = %109, %106, %12
  ret void
}

; Function Attrs: nounwind
define void @replay_run(ptr noundef %0, ptr noundef writeonly captures(address_is_null) %1) local_unnamed_addr #0 {
  %3 = alloca %struct.timespec, align 8
  %4 = alloca %struct.timespec, align 8
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %6 = load i64, ptr %5, align 8, !tbaa !27
  %7 = icmp sgt i64 %6, 0
  br i1 %7, label %8, label %17

8:                                                ; preds = %2
  %9 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %10 = load ptr, ptr %9, align 8, !tbaa !34
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %12 = load ptr, ptr %11, align 8, !tbaa !35
  %13 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %14 = load ptr, ptr %13, align 8, !tbaa !36
  %15 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %16 = load ptr, ptr %15, align 8, !tbaa !37
  br label %28

17:                                               ; preds = %28, %2
  %18 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %19 = load i64, ptr %18, align 8, !tbaa !38
  %20 = icmp sgt i64 %19, 0
  br i1 %20, label %21, label %50

21:                                               ; preds = %17
  %22 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %23 = load ptr, ptr %22, align 8, !tbaa !39
  %24 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %25 = load ptr, ptr %24, align 8, !tbaa !40
  %26 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %27 = load ptr, ptr %26, align 8, !tbaa !41
  br label %40

28:                                               ; preds = %28, %8
  %29 = phi i64 [ 0, %8 ], [ %38, %28 ]
  %30 = getelementptr inbounds nuw i64, ptr %12, i64 %29
  %31 = load i64, ptr %30, align 8, !tbaa !42
  %32 = getelementptr inbounds ptr, ptr %10, i64 %31
  %33 = load ptr, ptr %32, align 8, !tbaa !43
  %34 = getelementptr inbounds nuw i64, ptr %14, i64 %29
  %35 = load i64, ptr %34, align 8, !tbaa !42
  %36 = getelementptr inbounds i8, ptr %33, i64 %35
  %37 = getelementptr inbounds nuw ptr, ptr %16, i64 %29
  store ptr %36, ptr %37, align 8, !tbaa !43
  %38 = add nuw nsw i64 %29, 1
  %39 = icmp eq i64 %38, %6
  br i1 %39, label %17, label %28, !llvm.loop !45

40:                                               ; preds = %40, %21
  %41 = phi i64 [ 0, %21 ], [ %47, %40 ]
  %42 = getelementptr inbounds nuw i64, ptr %25, i64 %41
  %43 = load i64, ptr %42, align 8, !tbaa !42
  %44 = getelementptr inbounds i64, ptr %23, i64 %43
  %45 = load i64, ptr %44, align 8, !tbaa !42
  %46 = getelementptr inbounds nuw i64, ptr %27, i64 %41
  store i64 %45, ptr %46, align 8, !tbaa !42
  %47 = add nuw nsw i64 %41, 1
  %48 = load i64, ptr %18, align 8, !tbaa !38
  %49 = icmp slt i64 %47, %48
  br i1 %49, label %40, label %50, !llvm.loop !46

50:                                               ; preds = %40, %17
  %51 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %52 = load i64, ptr %51, align 8, !tbaa !47
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
  call void @llvm.lifetime.start.p0(ptr nonnull %4) #8
  %62 = call i32 @clock_gettime(i32 noundef 6, ptr noundef nonnull %4) #8
  %63 = load i64, ptr %4, align 8, !tbaa !48
  %64 = load i64, ptr %56, align 8, !tbaa !51
  call void @llvm.lifetime.end.p0(ptr nonnull %4) #8
  %65 = load ptr, ptr %0, align 8, !tbaa !52
  %66 = getelementptr inbounds nuw %struct.record, ptr %65, i64 %60
  call fastcc void @run_record(ptr noundef nonnull %0, ptr noundef %66)
  call void @llvm.lifetime.start.p0(ptr nonnull %3) #8
  %67 = call i32 @clock_gettime(i32 noundef 6, ptr noundef nonnull %3) #8
  %68 = load i64, ptr %3, align 8, !tbaa !48
  %69 = load i64, ptr %57, align 8, !tbaa !51
  call void @llvm.lifetime.end.p0(ptr nonnull %3) #8
  %70 = sub i64 %68, %63
  %71 = mul i64 %70, 1000000000
  %72 = sub i64 %69, %64
  %73 = add i64 %72, %71
  %74 = getelementptr inbounds nuw i64, ptr %1, i64 %60
  store i64 %73, ptr %74, align 8, !tbaa !42
  br label %78

75:                                               ; preds = %59
  %76 = load ptr, ptr %0, align 8, !tbaa !52
  %77 = getelementptr inbounds nuw %struct.record, ptr %76, i64 %60
  call fastcc void @run_record(ptr noundef nonnull %0, ptr noundef %77)
  br label %78

78:                                               ; preds = %75, %61
  %79 = add nuw nsw i64 %60, 1
  %80 = load i64, ptr %51, align 8, !tbaa !47
  %81 = icmp slt i64 %79, %80
  br i1 %81, label %59, label %58, !llvm.loop !53
}

; Function Attrs: nounwind
define internal fastcc void @run_record(ptr noundef %0, ptr noundef %1) unnamed_addr #0 {
  %3 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %4 = load i64, ptr %3, align 8, !tbaa !54
  %5 = icmp sgt i64 %4, 1
  br i1 %5, label %6, label %60

6:                                                ; preds = %2
  %7 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %8 = load i64, ptr %7, align 8, !tbaa !56
  %9 = icmp eq i64 %8, 0
  %10 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %11 = load i64, ptr %10, align 8, !tbaa !57
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
  %22 = load ptr, ptr %14, align 8, !tbaa !58
  %23 = load i64, ptr %1, align 8, !tbaa !59
  %24 = getelementptr %struct.member, ptr %22, i64 %23
  %25 = getelementptr %struct.member, ptr %24, i64 %21
  %26 = getelementptr inbounds nuw i8, ptr %25, i64 32
  %27 = load i64, ptr %26, align 8, !tbaa !60
  %28 = tail call i64 @llvm.smax.i64(i64 %20, i64 0)
  %29 = add nsw i64 %27, %20
  %30 = tail call i64 @llvm.smin.i64(i64 %11, i64 %29)
  %31 = icmp slt i64 %28, %30
  br i1 %31, label %32, label %56

32:                                               ; preds = %18
  %33 = sub nsw i64 %30, %20
  %34 = sub nsw i64 %28, %20
  %35 = load ptr, ptr %15, align 8, !tbaa !39
  %36 = getelementptr inbounds nuw i8, ptr %25, i64 24
  %37 = load i64, ptr %36, align 8, !tbaa !62
  %38 = getelementptr inbounds i64, ptr %35, i64 %37
  %39 = load i64, ptr %38, align 8, !tbaa !42
  %40 = mul nsw i64 %39, %34
  %41 = sdiv i64 %40, %27
  %42 = mul nsw i64 %39, %33
  %43 = sdiv i64 %42, %27
  %44 = icmp slt i64 %41, %43
  br i1 %44, label %45, label %56

45:                                               ; preds = %32
  %46 = load ptr, ptr %25, align 8, !tbaa !63
  %47 = load ptr, ptr %16, align 8, !tbaa !37
  %48 = getelementptr inbounds nuw i8, ptr %25, i64 8
  %49 = load i64, ptr %48, align 8, !tbaa !64
  %50 = getelementptr inbounds ptr, ptr %47, i64 %49
  %51 = load ptr, ptr %17, align 8, !tbaa !41
  %52 = getelementptr inbounds nuw i8, ptr %25, i64 16
  %53 = load i64, ptr %52, align 8, !tbaa !65
  %54 = getelementptr inbounds i64, ptr %51, i64 %53
  tail call void %46(ptr noundef %50, ptr noundef %54, i64 noundef %41, i64 noundef %43) #8
  %55 = load i64, ptr %3, align 8, !tbaa !54
  br label %56

56:                                               ; preds = %45, %32, %18
  %57 = phi i64 [ %19, %32 ], [ %55, %45 ], [ %19, %18 ]
  %58 = add nuw nsw i64 %21, 1
  %59 = icmp slt i64 %58, %57
  br i1 %59, label %18, label %92, !llvm.loop !66

60:                                               ; preds = %2
  %61 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %62 = load ptr, ptr %61, align 8, !tbaa !58
  %63 = load i64, ptr %1, align 8, !tbaa !59
  %64 = getelementptr inbounds %struct.member, ptr %62, i64 %63
  %65 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %66 = load ptr, ptr %65, align 8, !tbaa !37
  %67 = getelementptr inbounds nuw i8, ptr %64, i64 8
  %68 = load i64, ptr %67, align 8, !tbaa !64
  %69 = getelementptr inbounds ptr, ptr %66, i64 %68
  %70 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %71 = load ptr, ptr %70, align 8, !tbaa !41
  %72 = getelementptr inbounds nuw i8, ptr %64, i64 16
  %73 = load i64, ptr %72, align 8, !tbaa !65
  %74 = getelementptr inbounds i64, ptr %71, i64 %73
  %75 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %76 = load ptr, ptr %75, align 8, !tbaa !39
  %77 = getelementptr inbounds nuw i8, ptr %64, i64 24
  %78 = load i64, ptr %77, align 8, !tbaa !62
  %79 = getelementptr inbounds i64, ptr %76, i64 %78
  %80 = load i64, ptr %79, align 8, !tbaa !42
  %81 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %82 = load i64, ptr %81, align 8, !tbaa !56
  %83 = icmp eq i64 %82, 0
  %84 = load ptr, ptr %64, align 8, !tbaa !63
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
  tail call void %84(ptr noundef %69, ptr noundef %74, i64 noundef 0, i64 noundef %80) #8
  br label %92

92:                                               ; preds = %56, %85, %91, %12
  ret void
}

; Function Attrs: nofree nounwind
define void @copy_kernel(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, i64 noundef %2, i64 noundef %3) local_unnamed_addr #3 {
  %5 = load ptr, ptr %0, align 8, !tbaa !43
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %7 = load ptr, ptr %6, align 8, !tbaa !43
  %8 = load i64, ptr %1, align 8, !tbaa !42
  %9 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %10 = load i64, ptr %9, align 8, !tbaa !42
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
  %34 = load <64 x i8>, ptr %33, align 1, !tbaa !67
  %35 = getelementptr inbounds nuw i8, ptr %19, i64 %32
  store <64 x i8> %34, ptr %35, align 16, !tbaa !67, !nontemporal !68
  %36 = add nuw nsw i64 %32, 64
  %37 = icmp slt i64 %36, %28
  br i1 %37, label %31, label %38, !llvm.loop !69

38:                                               ; preds = %31, %26
  %39 = add nsw i64 %28, %11
  br label %40

40:                                               ; preds = %38, %4
  %41 = phi i64 [ %39, %38 ], [ %11, %4 ]
  %42 = getelementptr inbounds i8, ptr %5, i64 %41
  %43 = getelementptr inbounds i8, ptr %7, i64 %41
  %44 = sub nsw i64 %13, %41
  tail call void @llvm.memmove.p0.p0.i64(ptr noundef align 1 %42, ptr noundef align 1 %43, i64 noundef %44, i1 noundef false) #8
  fence seq_cst
  ret void
}

declare i32 @pthread_mutex_init(ptr noundef, ptr noundef) local_unnamed_addr #2

declare i32 @"\01_pthread_cond_init"(ptr noundef, ptr noundef) local_unnamed_addr #2

declare i32 @pthread_mutex_lock(ptr noundef) local_unnamed_addr #2

declare i32 @"\01_pthread_cond_wait"(ptr noundef, ptr noundef) local_unnamed_addr #2

declare i32 @pthread_mutex_unlock(ptr noundef) local_unnamed_addr #2

declare i32 @pthread_cond_broadcast(ptr noundef) local_unnamed_addr #2

declare i32 @"\01_pthread_sigmask"(i32 noundef, ptr noundef, ptr noundef) local_unnamed_addr #2

declare i32 @pthread_create(ptr noundef, ptr noundef, ptr noundef, ptr noundef) local_unnamed_addr #2

; Function Attrs: nounwind
define internal noalias noundef ptr @work(ptr readnone captures(none) %0) #0 {
  %2 = alloca %struct.timespec, align 8
  %3 = alloca %struct.timespec, align 8
  %4 = alloca %struct.timespec, align 8
  %5 = getelementptr inbounds nuw i8, ptr %4, i64 8
  %6 = getelementptr inbounds nuw i8, ptr %3, i64 8
  %7 = getelementptr inbounds nuw i8, ptr %2, i64 8
  br label %11

8:                                                ; preds = %67
  %9 = lshr i64 %64, 32
  %10 = trunc nuw i64 %9 to i32
  br label %101

11:                                               ; preds = %101, %1
  %12 = phi i32 [ 0, %1 ], [ %102, %101 ]
  br label %13

13:                                               ; preds = %11, %70
  %14 = load atomic i64, ptr @poll_ns monotonic, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %4) #8
  %15 = call i32 @clock_gettime(i32 noundef 6, ptr noundef nonnull %4) #8
  %16 = load i64, ptr %4, align 8, !tbaa !48
  %17 = load i64, ptr %5, align 8, !tbaa !51
  call void @llvm.lifetime.end.p0(ptr nonnull %4) #8
  %18 = load atomic i64, ptr @gate acquire, align 64
  %19 = lshr i64 %18, 32
  %20 = trunc nuw i64 %19 to i32
  %21 = icmp eq i32 %12, %20
  br i1 %21, label %22, label %63

22:                                               ; preds = %13
  %23 = add i64 %17, %14
  %24 = mul nsw i64 %16, 1000000000
  %25 = add i64 %23, %24
  br label %26

26:                                               ; preds = %56, %22
  %27 = phi i64 [ %25, %22 ], [ %57, %56 ]
  %28 = phi i32 [ 1, %22 ], [ %58, %56 ]
  call void @llvm.aarch64.hint(i32 1)
  %29 = and i32 %28, 31
  %30 = icmp eq i32 %29, 0
  br i1 %30, label %31, label %56

31:                                               ; preds = %26
  call void @llvm.lifetime.start.p0(ptr nonnull %3) #8
  %32 = call i32 @clock_gettime(i32 noundef 6, ptr noundef nonnull %3) #8
  %33 = load i64, ptr %3, align 8, !tbaa !48
  %34 = mul nsw i64 %33, 1000000000
  %35 = load i64, ptr %6, align 8, !tbaa !51
  %36 = add nsw i64 %34, %35
  call void @llvm.lifetime.end.p0(ptr nonnull %3) #8
  %37 = icmp sgt i64 %36, %27
  br i1 %37, label %38, label %56

38:                                               ; preds = %31
  %39 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 64
  %40 = call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %41 = load atomic i32, ptr getelementptr inbounds nuw (i8, ptr @gate, i64 4) seq_cst, align 4
  %42 = icmp eq i32 %41, %12
  br i1 %42, label %43, label %47

43:                                               ; preds = %38, %43
  %44 = call i32 @"\01_pthread_cond_wait"(ptr noundef nonnull @sleep_condition, ptr noundef nonnull @sleep_mutex) #8
  %45 = load atomic i32, ptr getelementptr inbounds nuw (i8, ptr @gate, i64 4) seq_cst, align 4
  %46 = icmp eq i32 %45, %12
  br i1 %46, label %43, label %47, !llvm.loop !9

47:                                               ; preds = %43, %38
  %48 = call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  %49 = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 64
  call void @llvm.lifetime.start.p0(ptr nonnull %2) #8
  %50 = call i32 @clock_gettime(i32 noundef 6, ptr noundef nonnull %2) #8
  %51 = load i64, ptr %2, align 8, !tbaa !48
  %52 = mul nsw i64 %51, 1000000000
  %53 = load i64, ptr %7, align 8, !tbaa !51
  call void @llvm.lifetime.end.p0(ptr nonnull %2) #8
  %54 = add i64 %53, %14
  %55 = add i64 %54, %52
  br label %56

56:                                               ; preds = %47, %31, %26
  %57 = phi i64 [ %27, %26 ], [ %27, %31 ], [ %55, %47 ]
  %58 = add i32 %28, 1
  %59 = load atomic i64, ptr @gate acquire, align 64
  %60 = lshr i64 %59, 32
  %61 = trunc nuw i64 %60 to i32
  %62 = icmp eq i32 %12, %61
  br i1 %62, label %26, label %63, !llvm.loop !70

63:                                               ; preds = %56, %13
  %64 = phi i64 [ %18, %13 ], [ %59, %56 ]
  %65 = load atomic i32, ptr @stopping acquire, align 4
  %66 = icmp eq i32 %65, 0
  br i1 %66, label %67, label %107

67:                                               ; preds = %63
  %68 = and i64 %64, 1073741824
  %69 = icmp eq i64 %68, 0
  br i1 %69, label %8, label %70

70:                                               ; preds = %67
  %71 = add i64 %64, 1
  %72 = cmpxchg ptr @gate, i64 %64, i64 %71 acq_rel monotonic, align 64
  %73 = extractvalue { i64, i1 } %72, 1
  br i1 %73, label %74, label %13, !llvm.loop !71

74:                                               ; preds = %70
  %75 = lshr i64 %64, 32
  %76 = trunc nuw i64 %75 to i32
  %77 = load atomic i32, ptr @sleepers seq_cst, align 64
  %78 = icmp sgt i32 %77, 0
  br i1 %78, label %79, label %83

79:                                               ; preds = %74
  %80 = call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %81 = call i32 @pthread_cond_broadcast(ptr noundef nonnull @sleep_condition) #8
  %82 = call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  br label %83

83:                                               ; preds = %74, %79
  %84 = load i64, ptr @job.3, align 8, !tbaa !23
  %85 = load i64, ptr @job.4, align 32, !tbaa !24
  %86 = atomicrmw add ptr @next, i64 %85 monotonic, align 64
  %87 = icmp slt i64 %86, %84
  br i1 %87, label %88, label %97

88:                                               ; preds = %83, %88
  %89 = phi i64 [ %95, %88 ], [ %86, %83 ]
  %90 = add nsw i64 %89, %85
  %91 = load ptr, ptr @job.0, align 64, !tbaa !18
  %92 = load ptr, ptr @job.1, align 8, !tbaa !21
  %93 = load ptr, ptr @job.2, align 16, !tbaa !22
  %94 = call i64 @llvm.smin.i64(i64 %90, i64 %84)
  call void %91(ptr noundef %92, ptr noundef %93, i64 noundef %89, i64 noundef %94) #8
  %95 = atomicrmw add ptr @next, i64 %85 monotonic, align 64
  %96 = icmp slt i64 %95, %84
  br i1 %96, label %88, label %97, !llvm.loop !25

97:                                               ; preds = %88, %83
  %98 = atomicrmw sub ptr @gate, i64 1 acq_rel, align 64
  %99 = and i64 %98, 4294967295
  %100 = icmp eq i64 %99, 2147483649
  br i1 %100, label %103, label %101

101:                                              ; preds = %97, %103, %8
  %102 = phi i32 [ %76, %97 ], [ %76, %103 ], [ %10, %8 ]
  br label %11

103:                                              ; preds = %97
  %104 = call i32 @pthread_mutex_lock(ptr noundef nonnull @sleep_mutex) #8
  %105 = call i32 @pthread_cond_broadcast(ptr noundef nonnull @sleep_condition) #8
  %106 = call i32 @pthread_mutex_unlock(ptr noundef nonnull @sleep_mutex) #8
  br label %101

107:                                              ; preds = %63
  ret ptr null
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn
declare void @llvm.aarch64.hint(i32) #4

declare i32 @clock_gettime(i32 noundef, ptr noundef) local_unnamed_addr #2

; Function Attrs: nounwind
define internal void @run_pieces(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, i64 noundef %2, i64 noundef %3) #0 {
  %5 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %6 = load i64, ptr %5, align 8, !tbaa !54
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
  %18 = load ptr, ptr %9, align 8, !tbaa !58
  %19 = load i64, ptr %1, align 8, !tbaa !59
  %20 = getelementptr %struct.member, ptr %18, i64 %19
  %21 = getelementptr %struct.member, ptr %20, i64 %17
  %22 = getelementptr inbounds nuw i8, ptr %21, i64 32
  %23 = load i64, ptr %22, align 8, !tbaa !60
  %24 = tail call i64 @llvm.smax.i64(i64 %2, i64 %16)
  %25 = add nsw i64 %23, %16
  %26 = tail call i64 @llvm.smin.i64(i64 %3, i64 %25)
  %27 = icmp slt i64 %24, %26
  br i1 %27, label %28, label %52

28:                                               ; preds = %14
  %29 = sub nsw i64 %26, %16
  %30 = sub nsw i64 %24, %16
  %31 = load ptr, ptr %10, align 8, !tbaa !39
  %32 = getelementptr inbounds nuw i8, ptr %21, i64 24
  %33 = load i64, ptr %32, align 8, !tbaa !62
  %34 = getelementptr inbounds i64, ptr %31, i64 %33
  %35 = load i64, ptr %34, align 8, !tbaa !42
  %36 = mul nsw i64 %35, %30
  %37 = sdiv i64 %36, %23
  %38 = mul nsw i64 %35, %29
  %39 = sdiv i64 %38, %23
  %40 = icmp slt i64 %37, %39
  br i1 %40, label %41, label %52

41:                                               ; preds = %28
  %42 = load ptr, ptr %21, align 8, !tbaa !63
  %43 = load ptr, ptr %11, align 8, !tbaa !37
  %44 = getelementptr inbounds nuw i8, ptr %21, i64 8
  %45 = load i64, ptr %44, align 8, !tbaa !64
  %46 = getelementptr inbounds ptr, ptr %43, i64 %45
  %47 = load ptr, ptr %12, align 8, !tbaa !41
  %48 = getelementptr inbounds nuw i8, ptr %21, i64 16
  %49 = load i64, ptr %48, align 8, !tbaa !65
  %50 = getelementptr inbounds i64, ptr %47, i64 %49
  tail call void %42(ptr noundef %46, ptr noundef %50, i64 noundef %37, i64 noundef %39) #8
  %51 = load i64, ptr %5, align 8, !tbaa !54
  br label %52

52:                                               ; preds = %28, %41, %14
  %53 = phi i64 [ %15, %28 ], [ %51, %41 ], [ %15, %14 ]
  %54 = add nuw nsw i64 %17, 1
  %55 = icmp slt i64 %54, %53
  br i1 %55, label %14, label %13, !llvm.loop !66
}

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.smin.i32(i32, i32) #5

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smax.i64(i64, i64) #5

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.abs.i64(i64, i1 immarg) #6

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smin.i64(i64, i64) #5

; Function Attrs: nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memmove.p0.p0.i64(ptr writeonly captures(none), ptr readonly captures(none), i64, i1 immarg) #7

attributes #0 = { nounwind "no-trapping-math"="true" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { "no-trapping-math"="true" }
attributes #3 = { nofree nounwind "no-trapping-math"="true" }
attributes #4 = { mustprogress nocallback nofree nosync nounwind willreturn }
attributes #5 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #6 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #7 = { nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #8 = { nounwind }

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
!12 = distinct !{!12, !10, !11}
!13 = !{!14, !14, i64 0}
!14 = !{!"p1 _ZTS17_opaque_pthread_t", !15, i64 0}
!15 = !{!"any pointer", !7, i64 0}
!16 = distinct !{!16, !10, !11}
!17 = distinct !{!17, !10, !11}
!18 = !{!19, !15, i64 0}
!19 = !{!"", !15, i64 0, !15, i64 8, !15, i64 16, !20, i64 24, !20, i64 32}
!20 = !{!"long long", !7, i64 0}
!21 = !{!19, !15, i64 8}
!22 = !{!19, !15, i64 16}
!23 = !{!19, !20, i64 24}
!24 = !{!19, !20, i64 32}
!25 = distinct !{!25, !11}
!26 = distinct !{!26, !10, !11}
!27 = !{!28, !20, i64 56}
!28 = !{!"table", !29, i64 0, !20, i64 8, !30, i64 16, !31, i64 24, !33, i64 32, !33, i64 40, !31, i64 48, !20, i64 56, !33, i64 64, !33, i64 72, !33, i64 80, !20, i64 88}
!29 = !{!"p1 _ZTS6record", !15, i64 0}
!30 = !{!"p1 _ZTS6member", !15, i64 0}
!31 = !{!"p2 omnipotent char", !32, i64 0}
!32 = !{!"any p2 pointer", !15, i64 0}
!33 = !{!"p1 long long", !15, i64 0}
!34 = !{!28, !31, i64 48}
!35 = !{!28, !33, i64 32}
!36 = !{!28, !33, i64 40}
!37 = !{!28, !31, i64 24}
!38 = !{!28, !20, i64 88}
!39 = !{!28, !33, i64 80}
!40 = !{!28, !33, i64 72}
!41 = !{!28, !33, i64 64}
!42 = !{!20, !20, i64 0}
!43 = !{!44, !44, i64 0}
!44 = !{!"p1 omnipotent char", !15, i64 0}
!45 = distinct !{!45, !10, !11}
!46 = distinct !{!46, !10, !11}
!47 = !{!28, !20, i64 8}
!48 = !{!49, !50, i64 0}
!49 = !{!"timespec", !50, i64 0, !50, i64 8}
!50 = !{!"long", !7, i64 0}
!51 = !{!49, !50, i64 8}
!52 = !{!28, !29, i64 0}
!53 = distinct !{!53, !10, !11}
!54 = !{!55, !20, i64 8}
!55 = !{!"record", !20, i64 0, !20, i64 8, !20, i64 16, !20, i64 24}
!56 = !{!55, !20, i64 24}
!57 = !{!55, !20, i64 16}
!58 = !{!28, !30, i64 16}
!59 = !{!55, !20, i64 0}
!60 = !{!61, !20, i64 32}
!61 = !{!"member", !15, i64 0, !20, i64 8, !20, i64 16, !20, i64 24, !20, i64 32}
!62 = !{!61, !20, i64 24}
!63 = !{!61, !15, i64 0}
!64 = !{!61, !20, i64 8}
!65 = !{!61, !20, i64 16}
!66 = distinct !{!66, !10, !11}
!67 = !{!7, !7, i64 0}
!68 = !{i32 1}
!69 = distinct !{!69, !10, !11}
!70 = distinct !{!70, !11}
!71 = distinct !{!71, !11}
