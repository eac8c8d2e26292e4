/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file swell.h
 * Makes a training program elastic while it runs: its state is registered once, and at a step
 * boundary a program of the next plan takes it over. docs/runtime.md says how, and what is not
 * there yet.
 *
 * A program of any epoch does the same: swell_open(), swell_register() of each tensor that this
 * rank holds under its plan, swell_adopt(), then swell_step() after each step until it says
 * otherwise.
 *
 * A program that can train with another plan in the same process says so (SWELL_OPEN_STAYS), and is
 * not started anew where its rank's worker is in the next plan, too. swell_step() tells it
 * SWELL_PREPARE beforehand: then it makes a session for the next epoch by swell_next(), registers
 * what it will hold there, calls swell_offer(), and trains on. After SWELL_SWITCH it calls
 * swell_adopt() of that session, ends the old one, and goes on with the new one.
 *
 * Functions return 0 or more, or a negative errno; swell_last_error() then says what was wrong, and
 * with which value. No function raises an exception or ends the process. A session is used by one
 * thread at a time, but for regions; different sessions are independent. Structs begin with a
 * field_mask, so that they can grow: a field whose bit is not set is not read.
 */
#ifndef SWELL_H
#define SWELL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Grows with each function or field that is added. */
#define SWELL_API_VERSION 10
#define SWELL_MAX_DIMS 8
#define SWELL_MAX_CHUNKS 256

/** A program's connection to its shim. */
typedef struct swell_session swell_session_t;

/** Returned by swell_step(): what the program is to do. */
typedef enum swell_action {
  SWELL_GO_ON = 0,
  SWELL_SWITCH = 1, /**< the state has been taken over: by the session that swell_next() made and
                       swell_offer() offered, which swell_adopt() then gets it with; else, or
                       where that says -ECANCELED, by another program: leave, with exit code 0 */
  SWELL_STOP = 2,   /**< leave after what you wish to write: told to all ranks at the same step,
                       where those that answer can agree on one in time */
  SWELL_CHECKPOINT = 3, /**< write a checkpoint, then go on */
  SWELL_PREPARE = 4 /**< another epoch is being prepared: swell_next(), then go on; told only to a
                       program that stays, once for each epoch */
} swell_action_t;

typedef enum swell_kind {
  SWELL_PARAMETER = 0,
  SWELL_GRADIENT = 1,
  SWELL_MOMENT = 2, /**< of an optimizer */
  SWELL_OPTIMIZER_STEP = 3,
  SWELL_SCHEDULER = 4,
  SWELL_RNG = 5, /**< named by logical coordinate, not by rank */
  SWELL_DATA_POSITION = 6
} swell_kind_t;

typedef enum swell_dtype {
  SWELL_U8 = 0,
  SWELL_F8 = 1,
  SWELL_F16 = 2,
  SWELL_BF16 = 3,
  SWELL_I32 = 4,
  SWELL_F32 = 5,
  SWELL_I64 = 6,
  SWELL_F64 = 7
} swell_dtype_t;

enum {
  SWELL_OPEN_SOCKET = 1 << 0,              /**< socket */
  SWELL_OPEN_SNAPSHOT_EVERY = 1 << 1,      /**< snapshot_every */
  SWELL_OPEN_STAYS = 1 << 2,               /**< stays */
  SWELL_OPEN_STAYS_IF_NONE_IS_NEW = 1 << 3 /**< stays_if_none_is_new */
};

/** How to open a session. */
typedef struct swell_open_params {
  uint64_t field_mask;
  const char* socket; /**< path of the shim's socket; else the environment's SWELL_RUNTIME */
  /** Steps from one snapshot of the state to the next, the same on every rank; 0: none; else the
      environment's SWELL_SNAPSHOT_EVERY. At such a boundary swell_step() returns when the state is
      copied in this host's memory; a partner on another node gets it while the training goes on.
      A lost worker then costs the steps since the last snapshot that all ranks had, rather than
      those since the last checkpoint: swell_adopt() hands it to the next programs. One is also
      taken where swell_step() says SWELL_STOP, so that they begin there; a program that finds a
      newer checkpoint than the adopted step reads that. Three snapshots
      of a rank are kept, and three on its partner: up to six times the state in host memory. */
  uint64_t snapshot_every;
  /** Not 0: this process can train with another plan. Where it is in the next epoch's, swell_step()
      says SWELL_PREPARE, and no new program is started beside it. */
  int stays;
  /** Not 0: as stays, but only where each worker of the next epoch trains already, as where GPUs go
      back; else all are started anew. For programs that begin with collectives of all ranks. */
  int stays_if_none_is_new;
} swell_open_params_t;

enum {
  SWELL_TENSOR_LAYER = 1 << 0,    /**< layer; else of no layer */
  SWELL_TENSOR_KIND = 1 << 1,     /**< kind; else SWELL_PARAMETER */
  SWELL_TENSOR_BLOCK = 1 << 2,    /**< begin, end; else the whole tensor */
  SWELL_TENSOR_RANGE = 1 << 3,    /**< flat_begin, flat_end; else all of the block */
  SWELL_TENSOR_ALIAS = 1 << 4,    /**< alias_of */
  SWELL_TENSOR_ADDRESS = 1 << 5,  /**< address; else the memory is Swell's, see swell_address() */
  SWELL_TENSOR_OPTIONAL = 1 << 6, /**< optional */
  SWELL_TENSOR_DEVICE = 1 << 7    /**< device; else in host memory */
};

/** The part of one tensor that this rank holds. name, dtype, dims and shape are always read. */
typedef struct swell_tensor {
  uint64_t field_mask;
  const char*
      name; /**< of the whole tensor, the same on every rank and in every plan; at most 512 bytes */
  swell_dtype_t dtype;
  int dims;                      /**< 1 to SWELL_MAX_DIMS */
  int64_t shape[SWELL_MAX_DIMS]; /**< of the whole tensor, in elements */
  int layer;                     /**< of the model, from 0 */
  swell_kind_t kind;
  int64_t begin[SWELL_MAX_DIMS]; /**< the block [begin, end) of each dimension, in elements */
  int64_t end[SWELL_MAX_DIMS];
  int64_t flat_begin, flat_end; /**< of the block in row-major order, in elements; what is past its
                                   end is padding */
  const char* alias_of;         /**< the tied tensor's other name, which counts */
  void* address;                /**< of your memory, flat_end - flat_begin elements; with
                                   SWELL_TENSOR_DEVICE, from version 6 on, on that GPU */
  int optional; /**< not 0: this program can make it where the old plan has none (a new RNG) */
  int device; /**< GPU whose memory Swell takes for it, or on which your address is, as CUDA counts
                 them in this process; the same for all of a session */
} swell_tensor_t;

/** The epoch that a program adopted. Set by swell_adopt(), wholly. */
typedef struct swell_epoch {
  uint64_t epoch; /**< from 1; 0 outside of Swell */
  uint64_t step;  /**< the boundary at which the last epoch ended: go on with the next step; 0 where
                     fresh */
  int fresh;      /**< not 0: the state is new, and the program makes it; else it is of `step`, also
                     where that is a snapshot's */
} swell_epoch_t;

/** Kinds of regions: parts of a step that the profiler times. */
typedef enum swell_region_kind {
  SWELL_FORWARD = 0,  /**< pass of one micro-batch through this rank's layers */
  SWELL_BACKWARD = 1, /**< the same, backwards */
  SWELL_OPTIMIZER = 2,
  SWELL_TP_ALLREDUCE = 3, /**< or another collective of the TP group, within a pass */
  SWELL_DP_SYNC = 4,      /**< of gradients or parameters; may run beside backward regions */
  SWELL_SEND = 5,         /**< of activations or their gradients to another stage */
  SWELL_RECEIVE = 6,      /**< the same; with the wait for the other stage */
  SWELL_HEAD = 7,         /**< output projection and loss, within a pass */
  SWELL_WEIGHTS = 8       /**< from version 10 on: a part of the backward pass that makes the
                             gradients of weights alone, at another time than the rest of it;
                             SWELL_BACKWARD is that rest then */
} swell_region_kind_t;

enum {
  SWELL_REGION_STAGE = 1 << 0,       /**< stage; else swell_set_role()'s */
  SWELL_REGION_MICRO_BATCH = 1 << 1, /**< micro_batch; else each region is one of its own */
  SWELL_REGION_LAYERS = 1 << 2,      /**< first_layer, layers */
  SWELL_REGION_MEMORY = 1 << 3,      /**< allocated_bytes */
  SWELL_REGION_STREAM = 1 << 4       /**< stream; else the host's clock is taken */
};

/** A region of a step. kind is always read. */
typedef struct swell_region {
  uint64_t field_mask;
  swell_region_kind_t kind;
  int stage;                /**< from 0 */
  int micro_batch;          /**< from 0, in each step */
  int first_layer, layers;  /**< of the model, from 0; how many */
  uint64_t allocated_bytes; /**< of device memory, as the region opens */
  void* stream;             /**< CUstream of the region's work, not NULL; its context is current */
} swell_region_t;

enum {
  SWELL_ROLE_ACTIVATION = 1 << 0,            /**< activation_dtype, _dims and _shape */
  SWELL_ROLE_WHOLE_ACTIVATIONS = 1 << 1,     /**< whole_activations; else not known */
  SWELL_ROLE_LAST_ACTIVATION_BYTES = 1 << 2, /**< last_activation_bytes; else 0 */
  SWELL_ROLE_TIED_EMBEDDING = 1 << 3,        /**< tied_embedding; else 0 */
  SWELL_ROLE_CHUNKS = 1 << 4                 /**< chunk_count and chunks; else not said */
};

/** Role of this rank in its plan. stage, group, layers and local_batch are always read. */
typedef struct swell_role {
  uint64_t field_mask;
  int stage;       /**< from 0 */
  int group;       /**< of the stage: the TP group, from 0 */
  int layers;      /**< of the model, on this stage; 1 or more */
  int local_batch; /**< samples of a micro-batch that the group computes; 1 or more */
  swell_dtype_t activation_dtype;
  int activation_dims;                      /**< 1 to SWELL_MAX_DIMS */
  int64_t activation_shape[SWELL_MAX_DIMS]; /**< of the tensor between two stages for one sample, in
                                               elements: sequence, hidden */
  double whole_activations;     /**< kept by a layer and not split by TP, in such tensors */
  double last_activation_bytes; /**< of one sample, on the last stage alone: logits */
  int tied_embedding;           /**< not 0: the output projection is the embedding's own matrix */
  int chunk_count;              /**< chunks of this stage: 1 to SWELL_MAX_CHUNKS */
  /** Units of each chunk, as "chunks" of a stage of a plan has them: embedding, layers, head;
     copied. Programs that say it, one chunk too, can run plans with chunks. */
  const int* chunks;
} swell_role_t;

/** The profiler's times. Set by swell_profile(), wholly; of the last full window of steps. */
typedef struct swell_times {
  int stable;        /**< not 0: it was within 2 % for three windows, and has been reported */
  int micro_batches; /**< of a step */
  double step_s;     /**< seconds from boundary to boundary */
  double forward_s, backward_s;           /**< of one micro-batch */
  double forward_tp_s;                    /**< of forward_s: TP all-reduces */
  double forward_head_s, backward_head_s; /**< of these: output projection and loss */
  double optimizer_s;                     /**< of a step */
  double dp_sync_s;      /**< of a step: what no backward pass hides of the synchronization */
  double layer_launch_s; /**< host seconds to launch one layer's forward pass; 0: no stream given */
  double kept_bytes;     /**< by which one micro-batch's forward pass raises what is allocated */
} swell_times_t;

/** SWELL_API_VERSION of the library that is loaded. */
int swell_api_version(void);

/**
 * Connect to the shim that swellrun started for this rank.
 *
 * Where neither params nor the environment names a socket, the session is a local one: the same
 * calls work, the state is this process's alone, and swell_step() always says SWELL_GO_ON.
 *
 * @param [in]  params   NULL: all by default.
 * @param [out] session  To be ended by swell_close().
 *
 * @return 0, or -ECONNREFUSED (no shim there, or another user's), -EINVAL (params), -ENOMEM.
 */
int swell_open(const swell_open_params_t* params, swell_session_t** session);

/**
 * Register one part of one tensor of the training state, before swell_adopt().
 *
 * @param [in] session  From swell_open().
 * @param [in] tensor   Described by field_mask; strings are copied. With SWELL_TENSOR_ADDRESS the
 * memory stays yours, and must outlive the session or a switch; state in it is copied at a switch,
 * and lost with the process. Without, it is in Swell's arena: handed over without a copy, and safe
 * from the program's death. With SWELL_TENSOR_DEVICE Swell's memory is on that GPU, whose primary
 * context is made where there is none: mapped by the next program there without a copy, copied
 * within or between GPUs of a node, and through host memory else. With both, you allocated it on
 * that GPU, in its primary context: copied within the GPU where this rank's next program is on it,
 * else through host memory.
 *
 * @return 0, or -EINVAL (what swell_last_error() says), -EBUSY (after swell_adopt()), -ENODEV (no
 * driver, no such GPU, or one whose memory cannot be handed over), -ENOMEM.
 *
 * Source: Suika 3.3; parts, padding and aliases in docs/runtime.md.
 */
int swell_register(swell_session_t* session, const swell_tensor_t* tensor);

/**
 * Take over the state that was registered. Blocks until this epoch begins: do all that takes long
 * (imports, device contexts, connections) before it, while the last epoch trains on.
 *
 * Afterwards the tensors' memory holds the state; where `fresh` is set Swell's is zero and to be
 * filled, yours as it was; gradients too. First it waits for the GPU if memory of yours is there.
 *
 * @param [out] epoch  Which state it is. May be NULL.
 *
 * @return 0, or -ECANCELED (the switch was called off: leave), -EINVAL (the shim refused the
 * tensors), -EBUSY (adopted already), -ECONNRESET (the shim is gone), -ENOMEM.
 */
int swell_adopt(swell_session_t* session, swell_epoch_t* epoch);

/**
 * Make a session of this process for the epoch that SWELL_PREPARE told of. Register what this rank
 * will hold there, and swell_offer(). Both sessions exist until the switch; their tensors have
 * addresses of their own. The role and regions of a session are its own, too.
 *
 * @param [in]  session  That trains. Opened with SWELL_OPEN_STAYS, or from swell_next() itself.
 * @param [out] next     To be ended by swell_close(). At another SWELL_PREPARE, or where
 * swell_adopt() says -ECANCELED, the one before is of no use any more.
 *
 * @return 0, or -ECANCELED (no other epoch is prepared any more: train on), -EINVAL, -ENOMEM;
 * swell_last_error(NULL) says why.
 */
int swell_next(const swell_session_t* session, swell_session_t** next);

/**
 * Say that this process cannot train in the epoch that SWELL_PREPARE told of, or, in a new process
 * that begins beside one that trains, in its own. The switch is called off at once; where GPUs must
 * go back, the workers are then asked to leave instead. Without this call the switch waits for
 * swell_offer() or swell_adopt() until its time is over. A new process then waits to be ended.
 *
 * @param [in] session  That trains, not the one of swell_next(); or that of a new process, before
 *                      swell_adopt().
 * @param [in] why      One sentence for the job's output and events; cut to 400 bytes.
 *
 * @return 0, or -EINVAL (no reason, no other epoch is prepared, no process trains here, or a shim
 * of an earlier version), -ECONNRESET (the shim is gone, or did not answer within 10 s).
 */
int swell_decline(swell_session_t* session, const char* why);

/**
 * Say the same where a GPU has no room for the state. Where all programs handle the restart
 * signal, the job is then resized by a restart at once.
 *
 * @param [in] session, why   As for swell_decline().
 * @param [in] needed_bytes   That the state takes on the GPU.
 * @param [in] free_bytes     That are free there.
 *
 * @return As swell_decline().
 */
int swell_lacks_room(swell_session_t* session, const char* why, uint64_t needed_bytes,
                     uint64_t free_bytes);

/**
 * Say that all tensors of the next epoch are registered. Waits for the shim's answer, at most 30 s
 * and mostly far below a step, and not for the switch: train on with the other session. A switch
 * that is called off is not told; the next one begins with SWELL_PREPARE again.
 *
 * @param [in] next  From swell_next().
 *
 * @return 0, or -EINVAL (the shim refused the tensors; this epoch is not offered again), -EBUSY
 * (offered already, or no session of swell_next()), -ECONNRESET (the shim is gone, or did not
 * answer within 30 s).
 */
int swell_offer(swell_session_t* next);

/**
 * A variable that swellrun gave the program of this session's epoch: RANK, WORLD_SIZE, MASTER_PORT,
 * SWELL_EPOCH, SWELL_PLAN and so on. A session from swell_open() reads the environment.
 *
 * @return its value, valid until swell_close() or until the environment is changed; NULL: there is
 * none.
 */
const char* swell_variable(const swell_session_t* session, const char* name);

/**
 * Address of a registered part, after swell_adopt().
 *
 * @param [in]  name     As it was registered.
 * @param [in]  index    From 0, in the order in which this name's parts were registered.
 * @param [out] address  Valid until swell_close(); aligned for the tensor's elements, and to 4,096
 * bytes where the epoch did not take over a range of a larger part. On a GPU it is a CUdeviceptr.
 * All work on it that was launched before swell_step() is waited for where that hands the state
 * over.
 * @param [out] bytes    Size with padding. May be NULL.
 *
 * @return 0, or -ENOENT (no such part), -EAGAIN (before swell_adopt()).
 */
int swell_address(swell_session_t* session, const char* name, int index, void** address,
                  size_t* bytes);

/**
 * Say that step `step` is done and the state is whole: the step boundary. Costs two loads where
 * there is nothing to do.
 *
 * At a switch it blocks until the state has moved. Do not touch the state of another thread
 * meanwhile.
 *
 * @param [in] step  Rises by 1 from call to call, the same on every rank; the first is the adopted
 * step + 1.
 *
 * @return a swell_action_t, or -EINVAL (a step that does not rise), -EAGAIN (before swell_adopt()),
 * -ECONNRESET (the shim is gone: the program may train on, but not switch).
 */
int swell_step(swell_session_t* session, uint64_t step);

/**
 * Whether a program of another epoch begins on this rank's node and GPU, beside this one, or takes
 * over at the coming step. Asked before swell_step(), it costs two loads. That program takes memory
 * before this one has ended: give back what you hold of the GPU and do not use
 * (torch.cuda.empty_cache()).
 *
 * @return 1 once for each such beginning and step, else 0; or -EAGAIN (before swell_adopt()).
 */
int swell_make_room(swell_session_t* session);

/**
 * Say what this rank is in its plan. From then on swell_step() reports this rank's profile to the
 * shim when its times are stable (three windows of five steps, at most 2 % apart), and again when
 * they are stable at other values. While they are stable, five steps of fifty are looked at.
 *
 * @param [in] role  Copied. Without SWELL_ROLE_ACTIVATION a profile is seen, but no coefficients
 * can be made of it.
 *
 * @return 0, or -EINVAL (what swell_last_error() says).
 *
 * Source: Suika 3.1 and appendix A.4.
 */
int swell_set_role(swell_session_t* session, const swell_role_t* role);

/**
 * Open a region of this step.
 *
 * May be called by any thread, also while others use the session; regions nest within those of
 * their own thread. Takes the host's clock. With SWELL_REGION_STREAM it records a CUDA event on the
 * stream instead, and the event's time is read after later steps: nothing waits for the device.
 *
 * @param [in] region  Copied.
 *
 * @return the region's number, 0 or more, for swell_region_end(); or -EAGAIN (before
 * swell_adopt()), -EINVAL (a kind that is none, a NULL stream, a negative number), -ENOSPC (64
 * regions are open, or the step has 65,536), -ENODEV (a stream, but no CUDA driver could be
 * opened), -ENOMEM. swell_last_error() says nothing of it: other threads may use it. A step with a
 * region that failed is left out. In steps that are not looked at no clock is read, no event is
 * recorded, and all regions have one number.
 *
 * Source: Suika 3.1; FlexTrain 6.
 */
int swell_region_begin(swell_session_t* session, const swell_region_t* region);

/**
 * Close a region. May be called by any thread.
 *
 * @param [in] region           From swell_region_begin(), of this step: swell_step() ends those
 * that are open, and a step is left out in which a pass or the optimizer was.
 * @param [in] allocated_bytes  Of device memory now; 0: not known.
 *
 * @return 0, or -EINVAL (no such region is open), -EAGAIN (before swell_adopt()).
 */
int swell_region_end(swell_session_t* session, int region, uint64_t allocated_bytes);

/**
 * Say the most device memory that was ever allocated, as the program's allocator counts it
 * (max_memory_allocated). Without it the largest number is taken that regions told. Any thread.
 *
 * @return 0, or -EAGAIN (before swell_adopt()).
 */
int swell_memory(swell_session_t* session, uint64_t peak_bytes);

/**
 * Get what the profiler has seen so far.
 *
 * @param [out] times  Those of the last five steps that were whole.
 *
 * @return 0, or -EAGAIN (fewer steps so far, or no swell_set_role()).
 */
int swell_profile(swell_session_t* session, swell_times_t* times);

/**
 * End a session and unmap its memory; addresses are of no use afterwards. NULL: nothing happens.
 */
void swell_close(swell_session_t* session);

/**
 * Why the last call with this session failed, one sentence; never NULL. `session` may be NULL: of
 * the calling thread's last failed swell_open(). Valid until the next call.
 */
const char* swell_last_error(const swell_session_t* session);

#ifdef __cplusplus
}
#endif
#endif
