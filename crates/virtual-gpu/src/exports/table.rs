//! What the virtual GPU answers without a function of its own, by the kind of answer:
//!
//! - `nothing`: what has no meaning here. It succeeds.
//! - `object`: makes something that has no contents. Its first argument is the place for the handle.
//! - `no_workspace`: asks how large a workspace must be, and it was not measured (`libraries.rs`). The number is that
//!   of the argument which is the place for the answer, with its type.
//! - `unwritten`: it is missing. It answers with an error that names it.
//!
//! All other functions are written in the modules next to this file. The names are those for which the libraries of
//! PyTorch 2.4 to 2.15 ask (`tests/wheel.rs` reads an installed wheel), and of the driver also what Triton and our own
//! plug-in call.

use std::ffi::{c_int, c_void};

use crate::exports::libraries::no_workspace;
use crate::exports::state::{self, gpu, pointer, put};

macro_rules! table {
    (
        nothing { $($nothing:ident)* }
        object { $($object:ident)* }
        no_workspace { $($places:tt: $($sized:ident)*;)* }
        unwritten { $($unwritten:ident)* }
    ) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $nothing() -> c_int {
                state::trace(stringify!($nothing));
                0
            }
        )*
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $object(to: *mut *mut c_void) -> c_int {
                state::trace(stringify!($object));
                let object = pointer(gpu().made_by(stringify!($object)));
                // SAFETY: the caller hands over a place for the handle.
                unsafe { put(to, object) }
            }
        )*
        $($( no_workspace!($sized $places); )*)*
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $unwritten() -> c_int {
                state::unwritten(stringify!($unwritten))
            }
        )*
    };
}

table! {
    nothing {
        // cudart
        __cudaInitModule __cudaRegisterFatBinaryEnd __cudaRegisterVar cudaDeviceEnablePeerAccess
        cudaDeviceSetGraphMemAttribute cudaFuncSetAttribute cudaGraphRetainUserObject
        cudaLibraryUnload cudaMemPoolSetAccess cudaMemPoolSetAttribute cudaMemPoolTrimTo
        cudaMemcpyToSymbol cudaProfilerStart cudaMemAdvise cudaMemAdvise_v2 cudaProfilerStop
        cudaStreamDestroy cudaUserObjectRelease
        // driver
        cuCtxPushCurrent_v2 cuCtxSetLimit cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2
        cuDevicePrimaryCtxSetFlags_v2 cuFuncSetAttribute cuFuncSetCacheConfig
        cuLogsRegisterCallback cuLogsUnregisterCallback cuMemAdvise cuMemAdvise_v2 cuMemSetAccess
        cuModuleUnload cuStreamDestroy_v2 cuTensorMapEncodeTiled
        // cuBLAS
        cublasCaxpy_v2 cublasCcopy_v2 cublasCdotc_v2 cublasCdotu_v2 cublasCgemmBatched
        cublasCgemv_v2 cublasCgerc_v2 cublasCgeru_v2 cublasChemm_v2 cublasChemv_v2 cublasCher2_v2
        cublasCher2k_v2 cublasCher_v2 cublasCherk_v2 cublasCrot_v2 cublasCrotg_v2 cublasCscal_v2
        cublasCsrot_v2 cublasCsscal_v2 cublasCswap_v2 cublasCsymm_v2 cublasCsymv_v2 cublasCsyr2_v2
        cublasCsyr2k_v2 cublasCsyr_v2 cublasCsyrk_v2 cublasCtrmm_v2 cublasCtrmv_v2
        cublasCtrsmBatched cublasCtrsm_v2 cublasCtrsv_v2 cublasDasum_v2 cublasDaxpy_v2
        cublasDcopy_v2 cublasDdot_v2 cublasDestroy_v2 cublasDgemmBatched cublasDgemv_v2
        cublasDger_v2 cublasDnrm2_v2 cublasDotEx cublasDrot_v2 cublasDrotg_v2 cublasDrotm_v2
        cublasDrotmg_v2 cublasDscal_v2 cublasDswap_v2 cublasDsymm_v2 cublasDsymv_v2 cublasDsyr2_v2
        cublasDsyr2k_v2 cublasDsyr_v2 cublasDsyrk_v2 cublasDtrmm_v2 cublasDtrmv_v2
        cublasDtrsmBatched cublasDtrsm_v2 cublasDtrsv_v2 cublasDzasum_v2 cublasDznrm2_v2
        cublasIcamax_v2 cublasIcamin_v2 cublasIdamax_v2 cublasIdamin_v2 cublasIsamax_v2
        cublasIsamin_v2 cublasIzamax_v2 cublasIzamin_v2 cublasLtDestroy cublasLtMatmulDescDestroy
        cublasLtMatmulDescSetAttribute cublasLtMatmulPreferenceDestroy
        cublasLtMatmulPreferenceSetAttribute cublasSasum_v2 cublasSaxpy_v2 cublasScasum_v2
        cublasScnrm2_v2 cublasScopy_v2 cublasSdot_v2 cublasSetMatrixAsync cublasSetPointerMode_v2
        cublasSetSmCountTarget cublasSetVectorAsync cublasSetWorkspace_v2 cublasSgemmBatched
        cublasSgemv_v2 cublasSger_v2 cublasSnrm2_v2 cublasSrot_v2 cublasSrotg_v2 cublasSrotm_v2
        cublasSrotmg_v2 cublasSscal_v2 cublasSswap_v2 cublasSsymm_v2 cublasSsymv_v2 cublasSsyr2_v2
        cublasSsyr2k_v2 cublasSsyr_v2 cublasSsyrk_v2 cublasStrmm_v2 cublasStrmv_v2
        cublasStrsmBatched cublasStrsm_v2 cublasStrsv_v2 cublasZaxpy_v2 cublasZcopy_v2
        cublasZdotc_v2 cublasZdotu_v2 cublasZdrot_v2 cublasZdscal_v2 cublasZgemmBatched
        cublasZgemv_v2 cublasZgerc_v2 cublasZgeru_v2 cublasZhemm_v2 cublasZhemv_v2 cublasZher2_v2
        cublasZher2k_v2 cublasZher_v2 cublasZherk_v2 cublasZrot_v2 cublasZrotg_v2 cublasZscal_v2
        cublasZswap_v2 cublasZsymm_v2 cublasZsymv_v2 cublasZsyr2_v2 cublasZsyr2k_v2 cublasZsyr_v2
        cublasZsyrk_v2 cublasZtrmm_v2 cublasZtrmv_v2 cublasZtrsmBatched cublasZtrsm_v2
        cublasZtrsv_v2
        // cuDNN
        cudnnBatchNormalizationBackwardEx cudnnBatchNormalizationForwardInference
        cudnnBatchNormalizationForwardTrainingEx cudnnCTCLoss cudnnCTCLoss_v8
        cudnnConvolutionBackwardData cudnnConvolutionBackwardFilter
        cudnnConvolutionBiasActivationForward cudnnConvolutionForward
        cudnnDestroyActivationDescriptor cudnnDestroyCTCLossDescriptor
        cudnnDestroyConvolutionDescriptor cudnnDestroySpatialTransformerDescriptor
        cudnnPoolingForward cudnnSetActivationDescriptor cudnnSetCTCLossDescriptorEx
        cudnnSetCTCLossDescriptor_v9 cudnnSetConvolutionGroupCount cudnnSetConvolutionMathType
        cudnnSetConvolutionNdDescriptor cudnnSetPooling2dDescriptor
        cudnnSetSpatialTransformerNdDescriptor cudnnSpatialTfGridGeneratorBackward
        cudnnSpatialTfGridGeneratorForward cudnnSpatialTfSamplerBackward
        cudnnSpatialTfSamplerForward
        // NCCL
        ncclCommDeregister ncclCommFinalize ncclCommRegister ncclGroupSimulateEnd ncclRedOpDestroy
        // cuSPARSE
        cusparseCbsrmm cusparseCbsrmv cusparseCbsrsm2_analysis cusparseCbsrsm2_solve
        cusparseCbsrsv2_analysis cusparseCbsrsv2_solve cusparseCcsrgeam2 cusparseCsrSetPointers
        cusparseCsrSetStridedBatch cusparseDbsrmm cusparseDbsrmv cusparseDbsrsm2_analysis
        cusparseDbsrsm2_solve cusparseDbsrsv2_analysis cusparseDbsrsv2_solve cusparseDcsrgeam2
        cusparseDestroy cusparseDestroyBsrsm2Info cusparseDestroyBsrsv2Info
        cusparseDestroyMatDescr cusparseDnMatSetStridedBatch cusparseLtDenseDescriptorInit
        cusparseLtInit cusparseLtMatDescriptorDestroy cusparseLtMatmul
        cusparseLtMatmulAlgSelectionInit cusparseLtMatmulAlgSetAttribute
        cusparseLtMatmulDescSetAttribute cusparseLtMatmulDescriptorInit cusparseLtMatmulPlanDestroy
        cusparseLtMatmulPlanInit cusparseLtMatmulSearch cusparseLtSpMMACompress2
        cusparseSDDMM cusparseSDDMM_preprocess cusparseSbsrmm cusparseSbsrmv
        cusparseSbsrsm2_analysis cusparseSbsrsm2_solve cusparseSbsrsv2_analysis
        cusparseSbsrsv2_solve cusparseScsrgeam2 cusparseSetMatDiagType cusparseSetMatFillMode
        cusparseSetMatIndexBase cusparseSetMatType cusparseSetPointerMode cusparseSetStream
        cusparseSpGEMM_copy cusparseSpGEMM_destroyDescr cusparseSpMM cusparseSpMV
        cusparseSpMatSetAttribute cusparseSpSM_analysis cusparseSpSM_destroyDescr cusparseSpSM_solve
        cusparseSpSV_analysis cusparseSpSV_destroyDescr cusparseSpSV_solve cusparseXcoo2csr
        cusparseXcoosortByRow cusparseXcsrsort cusparseZbsrmm cusparseZbsrmv
        cusparseZbsrsm2_analysis cusparseZbsrsm2_solve cusparseZbsrsv2_analysis
        cusparseZbsrsv2_solve cusparseZcsrgeam2
        // cuSOLVER, cuFFT and cuRAND
        cusolverDnDestroy cusolverDnDestroyGesvdjInfo cusolverDnDestroyParams
        cusolverDnDestroySyevjInfo cusolverDnSetStream cusolverDnXgesvdjSetMaxSweeps
        cusolverDnXgesvdjSetSortEig cusolverDnXgesvdjSetTolerance cusolverDnXsyevjSetSortEig
        cufftSetAutoAllocation cufftSetStream cufftSetWorkArea
        // NVRTC, CUPTI, NVTX
        cuptiActivityDisable cuptiActivityEnable cuptiActivityEnableCudaEventDeviceTimestamps
        cuptiActivityEnableDriverApi cuptiActivityEnableRuntimeApi cuptiActivityFlushAll
        cuptiActivityPopExternalCorrelationId cuptiActivityPushExternalCorrelationId
        cuptiActivityRegisterCallbacks cuptiActivityRegisterTimestampCallback
        cuptiActivitySetAttribute cuptiEnableCallback cuptiEnableDomain cuptiFinalize
        cuptiUnsubscribe nvrtcAddNameExpression nvrtcCompileProgram nvrtcDestroyProgram nvtxMarkA
        nvtxRangeEnd nvtxRangePop nvtxRangePushA nvtxRangeStartA
    }
    object {
        // cudart
        cudaGraphAddEmptyNode cudaGraphAddNode cudaLibraryLoadData cudaLibraryLoadFromFile
        // driver
        cuEventCreate cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuStreamCreate
        cuStreamCreateWithPriority
        // cuBLAS
        cublasCreate_v2 cublasLtCreate cublasLtMatmulDescCreate cublasLtMatmulPreferenceCreate
        // cuDNN
        cudnnCreate cudnnCreateActivationDescriptor cudnnCreateCTCLossDescriptor
        cudnnCreateConvolutionDescriptor cudnnCreateDropoutDescriptor cudnnCreateFilterDescriptor
        cudnnCreatePoolingDescriptor cudnnCreateRNNDataDescriptor cudnnCreateRNNDescriptor
        cudnnCreateSpatialTransformerDescriptor cudnnCreateTensorDescriptor
        // cuSPARSE
        cusparseCreate cusparseCreateBsrsm2Info cusparseCreateBsrsv2Info
        cusparseCreateIdentityPermutation cusparseCreateMatDescr cusparseSpGEMM_createDescr
        cusparseSpSM_createDescr cusparseSpSV_createDescr
        // cuSOLVER
        cusolverDnCreate cusolverDnCreateGesvdjInfo cusolverDnCreateParams cusolverDnCreateSyevjInfo
        // NVRTC, CUPTI
        cuptiSubscribe nvrtcCreateProgram
    }
    no_workspace {
        (4: c_int):
            cusolverDnCgesvd_bufferSize cusolverDnDgesvd_bufferSize cusolverDnSgesvd_bufferSize
            cusolverDnZgesvd_bufferSize;
        (5: c_int):
            cusolverDnCsytrf_bufferSize cusolverDnDsytrf_bufferSize cusolverDnSsytrf_bufferSize
            cusolverDnZsytrf_bufferSize;
        (6: c_int):
            cusolverDnCgeqrf_bufferSize cusolverDnCgetrf_bufferSize cusolverDnCpotrf_bufferSize
            cusolverDnDgeqrf_bufferSize cusolverDnDgetrf_bufferSize cusolverDnDpotrf_bufferSize
            cusolverDnSgeqrf_bufferSize cusolverDnSgetrf_bufferSize cusolverDnSpotrf_bufferSize
            cusolverDnZgeqrf_bufferSize cusolverDnZgetrf_bufferSize cusolverDnZpotrf_bufferSize;
        (8: c_int):
            cusolverDnCheevd_bufferSize cusolverDnCheevjBatched_bufferSize
            cusolverDnCheevj_bufferSize cusolverDnCungqr_bufferSize cusolverDnDorgqr_bufferSize
            cusolverDnDsyevd_bufferSize cusolverDnDsyevjBatched_bufferSize
            cusolverDnDsyevj_bufferSize cusolverDnSorgqr_bufferSize cusolverDnSsyevd_bufferSize
            cusolverDnSsyevjBatched_bufferSize cusolverDnSsyevj_bufferSize
            cusolverDnZheevd_bufferSize cusolverDnZheevjBatched_bufferSize
            cusolverDnZheevj_bufferSize cusolverDnZungqr_bufferSize;
        (12: c_int):
            cusolverDnCgesvdjBatched_bufferSize cusolverDnCunmqr_bufferSize
            cusolverDnDgesvdjBatched_bufferSize cusolverDnDormqr_bufferSize
            cusolverDnSgesvdjBatched_bufferSize cusolverDnSormqr_bufferSize
            cusolverDnZgesvdjBatched_bufferSize cusolverDnZunmqr_bufferSize
            cusparseCbsrsv2_bufferSize cusparseDbsrsv2_bufferSize cusparseSbsrsv2_bufferSize
            cusparseZbsrsv2_bufferSize;
        (13: c_int):
            cusolverDnCgesvdj_bufferSize cusolverDnDgesvdj_bufferSize cusolverDnSgesvdj_bufferSize
            cusolverDnZgesvdj_bufferSize;
        (14: c_int):
            cusparseCbsrsm2_bufferSize cusparseDbsrsm2_bufferSize cusparseSbsrsm2_bufferSize
            cusparseZbsrsm2_bufferSize;
        (17: c_int):
            cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched_bufferSize
            cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched_bufferSize;
        (1: usize):
            cuCtxGetLimit;
        (3: usize):
            cudaDeviceGetGraphMemAttribute cusparseLtMatmulGetWorkspace;
        (7: usize):
            cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt;
        (9, 10: usize):
            cusolverDnXpotrf_bufferSize;
        (10: usize):
            cusparseSpSV_bufferSize;
        (11: usize):
            cusparseSDDMM_bufferSize cusparseSpSM_bufferSize;
        (11, 12: usize):
            cusolverDnXgeqrf_bufferSize;
        (12, 13: usize):
            cusolverDnXsyevBatched_bufferSize cusolverDnXsyevd_bufferSize
            cusolverDnXsytrs_bufferSize;
        (18, 19: usize):
            cusolverDnXgeev_bufferSize;
    }
    unwritten {
        // cudart
        cudaGraphConditionalHandleCreate cudaGraphDebugDotPrint cudaGraphNodeGetType
        cudaIpcGetEventHandle cudaIpcOpenEventHandle cudaKernelSetAttributeForDevice
        cudaLibraryGetGlobal cudaLibraryGetKernel cudaLibraryGetKernelCount cudaLibraryGetManaged
        cudaLibraryGetUnifiedFunction cudaStreamBeginCaptureToGraph
        cudaStreamUpdateCaptureDependencies cudaUserObjectCreate
        // driver
        cuCtxCreate_v2 cuCtxCreate_v4 cuCtxFromGreenCtx cuCtxPopCurrent_v2 cuDevResourceGenerateDesc
        cuDevSmResourceSplitByCount cuDeviceGetDevResource cuDeviceGetUuid cuDeviceGetUuid_v2
        cuGetExportTable cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuLinkAddData_v2
        cuLinkComplete cuLinkCreate_v2 cuMemExportToShareableHandle cuMemGetHandleForAddressRange
        cuMemImportFromShareableHandle cuMemRetainAllocationHandle cuMulticastAddDevice
        cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate cuMulticastGetGranularity
        cuMulticastUnbind cuStreamGetGreenCtx cuStreamWaitValue32_v2 cuStreamWriteValue32
        cuStreamWriteValue32_v2
        // cuBLAS and cuDNN
        cublasGetMatrixAsync cublasGetVectorAsync cublasLtMatmulAlgoCheck
        cublasLtMatmulAlgoConfigGetAttribute cublasLtMatmulAlgoConfigSetAttribute
        cublasLtMatmulAlgoInit cudnnFindConvolutionBackwardDataAlgorithmEx
        cudnnFindConvolutionBackwardFilterAlgorithmEx cudnnFindConvolutionForwardAlgorithmEx
        cudnnGetConvolutionBackwardDataAlgorithm_v7 cudnnGetConvolutionBackwardDataWorkspaceSize
        cudnnGetConvolutionBackwardFilterAlgorithm_v7 cudnnGetConvolutionBackwardFilterWorkspaceSize
        cudnnGetConvolutionForwardAlgorithm_v7 cudnnGetConvolutionForwardWorkspaceSize
        // NCCL
        ncclCommGetUniqueId ncclCommGrow ncclCommMemStats ncclCommResume ncclCommRevoke
        ncclCommSuspend ncclCommWindowDeregister ncclCommWindowRegister ncclDevCommCreate
        ncclDevCommDestroy ncclGather ncclGetLsaMultimemDevicePointer ncclGetPeerDevicePointer
        ncclPutSignal ncclSignal ncclWaitSignal ncclWinGetUserPtr
        // cuSPARSE, NVRTC, CUPTI
        cusparseXbsrsm2_zeroPivot cusparseXbsrsv2_zeroPivot cuptiActivityGetNextRecord
        cuptiActivityGetNumDroppedRecords cuptiEventGetAttribute cuptiEventGetIdFromName
        cuptiEventGroupGetAttribute cuptiEventGroupReadEvent cuptiEventGroupSetAttribute
        cuptiEventGroupSetDisable cuptiEventGroupSetEnable cuptiEventGroupSetsCreate
        cuptiEventGroupSetsDestroy cuptiGetCallbackName cuptiGetDeviceId cuptiMetricEnumEvents
        cuptiMetricGetAttribute cuptiMetricGetIdFromName cuptiMetricGetNumEvents cuptiMetricGetValue
        cuptiSetEventCollectionMode
        // cuFile and NVSHMEM
        cuFileBufDeregister cuFileBufRegister cuFileHandleDeregister cuFileHandleRegister cuFileRead
        cuFileWrite nvshmem_barrier_all nvshmem_free nvshmem_info_get_version nvshmem_malloc
        nvshmem_ptr nvshmem_selected_device_transport nvshmem_team_n_pes nvshmem_team_split_strided
        nvshmemid_hostlib_finalize nvshmemid_hostlib_init_attr nvshmemid_init_status
        nvshmemx_alltoallmem_on_stream nvshmemx_broadcastmem_on_stream nvshmemx_cumodule_init
        nvshmemx_get_uniqueid nvshmemx_getmem_on_stream nvshmemx_mc_ptr nvshmemx_putmem_on_stream
        nvshmemx_putmem_signal_on_stream nvshmemx_set_attr_uniqueid_args
        nvshmemx_signal_wait_until_on_stream
    }
}
