/* shim/wrap_capture.c
 * GROUP(CAPTURE): the begin of a capture is gated and excludes Sublet's context-wide calls; its end lets queued frees go on. */
#include "shim/shim.h"

/* One body for every begin: through the gate (a capture keeps a hold off, and cannot go on under one), then the lock is taken,
 * the driver called, the outcome noted. */
#define BEGIN(symbol, args, stream, per_thread)                                                                        \
	do {                                                                                                           \
		struct gate_slot *slot_;                                                                               \
		CUresult result_;                                                                                      \
		if (!shim_active())                                                                                    \
			return FORWARD(symbol, args);                                                                  \
		slot_ = gate_enter(&shim_hot.lifecycle.gate, #symbol, NULL);                                               \
		if (!slot_)                                                                                            \
			return GATE_REFUSAL;                                                                           \
		shim_enter();                                                                                          \
		captures_begin_lock(&shim_hot.lifecycle.captures, stream, per_thread);                                     \
		result_ = FORWARD(symbol, args);                                                                       \
		captures_begin_unlock(&shim_hot.lifecycle.captures, result_, stream, per_thread);                          \
		shim_leave();                                                                                          \
		gate_leave(slot_);                                                                                     \
		return result_;                                                                                        \
	} while (0)

CUresult CUDAAPI cuStreamBeginCapture(CUstream hStream)
{
	BEGIN(cuStreamBeginCapture, (hStream), hStream, false);
}

CUresult CUDAAPI cuStreamBeginCapture_ptsz(CUstream hStream)
{
	BEGIN(cuStreamBeginCapture_ptsz, (hStream), hStream, true);
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	BEGIN(cuStreamBeginCapture_v2, (hStream, mode), hStream, false);
}

CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	BEGIN(cuStreamBeginCapture_v2_ptsz, (hStream, mode), hStream, true);
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
	const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)
{
	BEGIN(cuStreamBeginCaptureToGraph, (hStream, hGraph, dependencies, dependencyData, numDependencies, mode), hStream, false);
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
	const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)
{
	BEGIN(cuStreamBeginCaptureToGraph_ptsz, (hStream, hGraph, dependencies, dependencyData, numDependencies, mode), hStream,
		true);
}

static void capture_ended(uint64_t moment, CUresult result, CUstream stream, bool per_thread)
{
	if (!shim_active())
		return;
	shim_enter();
	if (captures_end(&shim_hot.lifecycle.captures, moment, result, stream, per_thread))
		reclaim_kick(&shim_hot.lifecycle);
	shim_leave();
}

CUresult CUDAAPI cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	uint64_t moment = captures_moment(&shim_hot.lifecycle.captures);
	CUresult result = FORWARD(cuStreamEndCapture, (hStream, phGraph));

	capture_ended(moment, result, hStream, false);
	return result;
}

CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	uint64_t moment = captures_moment(&shim_hot.lifecycle.captures);
	CUresult result = FORWARD(cuStreamEndCapture_ptsz, (hStream, phGraph));

	capture_ended(moment, result, hStream, true);
	return result;
}

static void stream_gone(uint64_t moment, CUresult result, CUstream stream)
{
	if (result != CUDA_SUCCESS || !shim_active())
		return;
	shim_enter();
	if (captures_stream_gone(&shim_hot.lifecycle.captures, moment, stream))
		reclaim_kick(&shim_hot.lifecycle);
	shim_leave();
}

CUresult CUDAAPI cuStreamDestroy(CUstream hStream)
{
	uint64_t moment = captures_moment(&shim_hot.lifecycle.captures);
	CUresult result = FORWARD(cuStreamDestroy, (hStream));

	stream_gone(moment, result, hStream);
	return result;
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream)
{
	uint64_t moment = captures_moment(&shim_hot.lifecycle.captures);
	CUresult result = FORWARD(cuStreamDestroy_v2, (hStream));

	stream_gone(moment, result, hStream);
	return result;
}
