/* shim/cuda_abi.h
 * cuda.h with every exported ABI declared under its own name: without this switch the header maps short
 * names to their newest form (cuMemAlloc becomes cuMemAlloc_v2) and hides the rest. Use this instead of
 * <cuda.h> wherever rows of entries.def are expanded or a driver symbol is defined. */
#ifndef SUBLET_SHIM_CUDA_ABI_H
#define SUBLET_SHIM_CUDA_ABI_H

#if defined(__cuda_cuda_h__) && !defined(__CUDA_API_VERSION_INTERNAL)
#error "cuda.h was included before shim/cuda_abi.h: include shim/shim.h first"
#endif
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
#if __has_include(<cudaProfiler.h>)
#include <cudaProfiler.h>
#else
/* The Python wheel of the runtime headers leaves cudaProfiler.h out; one row needs this type of it. */
typedef enum CUoutput_mode_enum { CU_OUT_KEY_VALUE_PAIR = 0x00, CU_OUT_CSV = 0x01 } CUoutput_mode;
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, CUoutput_mode outputMode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
#endif

#if CUDA_VERSION < 13000
#error "cuda.h is older than 13.0: the rows of shim/entries.def need the types of CUDA 13 (tools/bootstrap finds or fetches them)"
#endif

#endif
