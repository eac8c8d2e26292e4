/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file swell.h Makes a training program elastic while it runs. The program registers its state
 * once; at a step boundary a program of the next plan takes the state over. docs/runtime.md
 * explains how, and lists the limits.
 *
 * The program of every generation calls the same functions: swell_open(), swell_register() for each
 * tensor that this rank holds under its plan, swell_adopt(), and then swell_step() after each step
 * until swell_step() returns something else than SWELL_GO_ON.
 *
 * A program that can train with another plan in the same process sets SWELL_OPEN_STAYS. It is not
 * restarted if its rank's worker is also in the next plan. Before such a switch swell_step()
 * returns SWELL_PREPARE: the program then makes a session for the next generation with
 * swell_next(), registers the tensors that it will hold there, calls swell_offer(), and trains on.
 * After SWELL_SWITCH it calls swell_adopt() with the new session, closes the old one, and continues
 * with the new one. If the old session has tensors on a GPU, the program first waits for all work
 * that it has launched there: see swell_close().
 *
 * Functions return 0 or more, or a negative errno; swell_last_error() then names the error and the
 * wrong value. No function raises an exception or ends the process. Only one thread at a time may
 * use a session, except for the functions of regions; different sessions are independent. Structs
 * begin with a field_mask, so that later versions can add fields: a field is read only if its bit
 * is set.
 */
#ifndef SWELL_H
#define SWELL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Rises with each function or field that is added. */
#define SWELL_API_VERSION 10
#define SWELL_MAX_DIMS 8
#define SWELL_MAX_CHUNKS 256

/** A program's connection to its shim. */
typedef struct swell_session swell_session_t;

/** Returned by swell_step(): the next action of the program. */
typedef enum swell_action {
  SWELL_GO_ON = 0,
  /** The state has moved. If this program made a session with swell_next() and called
      swell_offer(), call swell_adopt() with it. Otherwise, or if swell_adopt() returns -ECANCELED,
      another program has the state: exit with code 0. */
  SWELL_SWITCH = 1,
  SWELL_STOP = 2, /**< write what you need, then exit; all ranks get this at the same step if the
                     ranks that answer agree on one in time */
  SWELL_CHECKPOINT = 3, /**< write a checkpoint, then go on */
  SWELL_PREPARE =
      4 /**< another generation is being prepared: call swell_next(), then go on; returned
           once for each generation, and only to programs with SWELL_OPEN_STAYS */
} swell_action_t;

typedef enum swell_kind {
  SWELL_PARAMETER = 0,
  SWELL_GRADIENT = 1,
  SWELL_MOMENT = 2, /**< a moment of an optimizer */
  SWELL_OPTIMIZER_STEP = 3,
  SWELL_SCHEDULER = 4,
  SWELL_RNG = 5, /**< name it by its logical coordinate, not by rank */
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
  const char* socket; /**< path of the shim's socket; default: SWELL_RUNTIME of the environment */
  /** Steps from one snapshot of the state to the next, the same on every rank; 0: no snapshots;
      default: SWELL_SNAPSHOT_EVERY of the environment. At the boundary of a snapshot swell_step()
      returns when the state has been copied in this host's memory; the copy on a partner node is
      made while the training goes on. If a worker is lost, the training then loses only the steps
      since the last snapshot that all ranks had, not those since the last checkpoint: swell_adopt()
      gives that snapshot to the next programs. A snapshot is also taken when swell_step() returns
      SWELL_STOP, so that the next programs begin at that step. A program that finds a checkpoint
      newer than the adopted step reads the checkpoint. Each rank keeps three snapshots, and its
      partner three more: up to six times the state in host memory. */
  uint64_t snapshot_every;
  /** Not 0: this process can train with another plan. If the next plan has this process's worker,
      swell_step() returns SWELL_PREPARE, and no new program is started beside this one. */
  int stays;
  /** Not 0: like stays, but only if each worker of the next generation trains already, for example
     when GPUs are given back; otherwise all programs are restarted. For programs that begin with
      collectives of all ranks. */
  int stays_if_none_is_new;
} swell_open_params_t;

enum {
  SWELL_TENSOR_LAYER = 1 << 0, /**< layer; default: the tensor belongs to no layer */
  SWELL_TENSOR_KIND = 1 << 1,  /**< kind; default: SWELL_PARAMETER */
  SWELL_TENSOR_BLOCK = 1 << 2, /**< begin, end; default: the whole tensor */
  SWELL_TENSOR_RANGE = 1 << 3, /**< flat_begin, flat_end; default: the whole block */
  SWELL_TENSOR_ALIAS = 1 << 4, /**< alias_of */
  /** address; default: Swell allocates the memory, see swell_address(). */
  SWELL_TENSOR_ADDRESS = 1 << 5,
  SWELL_TENSOR_OPTIONAL = 1 << 6, /**< optional */
  SWELL_TENSOR_DEVICE = 1 << 7    /**< device; default: host memory */
};

/** The part of one tensor that this rank holds. name, dtype, dims and shape are always read. */
typedef struct swell_tensor {
  uint64_t field_mask;
  const char* name; /**< name of the whole tensor, the same on every rank and in every plan; at most
                       512 bytes */
  swell_dtype_t dtype;
  int dims;                      /**< 1 to SWELL_MAX_DIMS */
  int64_t shape[SWELL_MAX_DIMS]; /**< shape of the whole tensor, in elements */
  int layer;                     /**< layer of the model, from 0 */
  swell_kind_t kind;
  int64_t begin[SWELL_MAX_DIMS]; /**< the block [begin, end) of each dimension, in elements */
  int64_t end[SWELL_MAX_DIMS];
  int64_t flat_begin, flat_end; /**< range of the block in row-major order, in elements; elements
                                   past the end of the block are padding */
  const char* alias_of;         /**< name of the tied tensor under which this one is stored */
  void* address;                /**< address of your memory, flat_end - flat_begin elements; with
                                   SWELL_TENSOR_DEVICE (from version 6 on) it is on that GPU */
  int optional; /**< not 0: this program can initialize the tensor if the old plan does not have it
                   (a new RNG) */
  int device;   /**< GPU on which Swell allocates the tensor, or on which your address is, as CUDA
                   numbers GPUs in this process; the same for all tensors of a session */
} swell_tensor_t;

/** The generation that a program adopted. swell_adopt() sets all fields. */
typedef struct swell_generation {
  union {
    uint64_t generation; /**< from 1; 0 for a program that does not run under Swell */
    uint64_t epoch;      /**< the former name of `generation`; the next version removes it */
  };
  uint64_t step; /**< the boundary at which the last generation ended: continue with the next step;
                    0 if fresh */
  int fresh; /**< not 0: the state is new, and the program initializes it; 0: the state is that of
                `step`, from the last generation or a snapshot */
} swell_generation_t;

/** The former name of swell_generation_t; the next version removes it. */
typedef swell_generation_t swell_epoch_t;

/** Kinds of regions, the parts of a step that the profiler times. */
typedef enum swell_region_kind {
  SWELL_FORWARD = 0,  /**< forward pass of one micro-batch through this rank's layers */
  SWELL_BACKWARD = 1, /**< its backward pass */
  SWELL_OPTIMIZER = 2,
  SWELL_TP_ALLREDUCE = 3, /**< all-reduce or another collective of the TP group, within a pass */
  /** Synchronization of gradients or parameters; may overlap backward regions. */
  SWELL_DP_SYNC = 4,
  SWELL_SEND = 5,    /**< sends activations or their gradients to another stage */
  SWELL_RECEIVE = 6, /**< receives them, including the wait for the other stage */
  SWELL_HEAD = 7,    /**< output projection and loss, within a pass */
  SWELL_WEIGHTS = 8  /**< from version 10 on: the part of a backward pass that computes only the
                        gradients of weights, if it runs at another time than the rest of the pass,
                        which is then SWELL_BACKWARD */
} swell_region_kind_t;

enum {
  SWELL_REGION_STAGE = 1 << 0, /**< stage; default: the stage given to swell_set_role() */
  /** micro_batch; default: each region counts as another micro-batch. */
  SWELL_REGION_MICRO_BATCH = 1 << 1,
  SWELL_REGION_LAYERS = 1 << 2, /**< first_layer, layers */
  SWELL_REGION_MEMORY = 1 << 3, /**< allocated_bytes */
  SWELL_REGION_STREAM = 1 << 4  /**< stream; default: the region is timed by the host's clock */
};

/** A region of a step. kind is always read. */
typedef struct swell_region {
  uint64_t field_mask;
  swell_region_kind_t kind;
  int stage;                /**< from 0 */
  int micro_batch;          /**< from 0, in each step */
  int first_layer, layers;  /**< first layer of the model, from 0, and number of layers */
  uint64_t allocated_bytes; /**< allocated device memory when the region opens */
  void* stream; /**< CUstream of the region's work, not NULL; its context must be current */
} swell_region_t;

enum {
  SWELL_ROLE_ACTIVATION = 1 << 0,            /**< activation_dtype, _dims and _shape */
  SWELL_ROLE_WHOLE_ACTIVATIONS = 1 << 1,     /**< whole_activations; default: not known */
  SWELL_ROLE_LAST_ACTIVATION_BYTES = 1 << 2, /**< last_activation_bytes; default: 0 */
  SWELL_ROLE_TIED_EMBEDDING = 1 << 3,        /**< tied_embedding; default: 0 */
  SWELL_ROLE_CHUNKS = 1 << 4                 /**< chunk_count and chunks; default: not known */
};

/** Role of this rank in its plan. stage, group, layers and local_batch are always read. */
typedef struct swell_role {
  uint64_t field_mask;
  int stage;       /**< from 0 */
  int group;       /**< TP group of the stage, from 0 */
  int layers;      /**< layers of the model on this stage; 1 or more */
  int local_batch; /**< samples of each micro-batch that the group computes; 1 or more */
  swell_dtype_t activation_dtype;
  int activation_dims;                      /**< 1 to SWELL_MAX_DIMS */
  int64_t activation_shape[SWELL_MAX_DIMS]; /**< shape of the tensor between two stages for one
                                               sample, in elements: sequence, hidden */
  double whole_activations; /**< activations that a layer keeps for its backward pass and that TP
                               does not split, as a multiple of that tensor */
  double last_activation_bytes; /**< bytes of one sample on the last stage only: logits */
  int tied_embedding;           /**< not 0: the output projection is the embedding's own matrix */
  int chunk_count;              /**< chunks of this stage: 1 to SWELL_MAX_CHUNKS */
  /** Number of units in each chunk, as "chunks" of a plan's stage lists them (embedding, layers,
      head); copied. Programs that set it, even to one chunk, can run plans with chunks. */
  const int* chunks;
} swell_role_t;

/** The profiler's times in the last full window of steps. swell_profile() sets all fields. */
typedef struct swell_times {
  int stable; /**< not 0: the times agreed within 2 % for three windows, and have been reported */
  int micro_batches;                      /**< micro-batches of a step */
  double step_s;                          /**< seconds from boundary to boundary */
  double forward_s, backward_s;           /**< time of one micro-batch */
  double forward_tp_s;                    /**< part of forward_s: TP all-reduces */
  double forward_head_s, backward_head_s; /**< parts of both: output projection and loss */
  double optimizer_s;                     /**< time of the optimizer in a step */
  double dp_sync_s;      /**< synchronization in a step that does not overlap a backward pass */
  double layer_launch_s; /**< host seconds to launch one layer's forward pass; 0: the regions named
                            no stream */
  double kept_bytes;     /**< allocated bytes that one micro-batch's forward pass adds */
} swell_times_t;

/** Return the SWELL_API_VERSION of the loaded library. */
int swell_api_version(void);

/**
 * Connect to the shim that swellrun started for this rank.
 *
 * If neither params nor the environment names a socket, the session is local: the same calls work,
 * the state belongs to this process only, and swell_step() always returns SWELL_GO_ON.
 *
 * @param [in]  params   NULL: all defaults.
 * @param [out] session  To be ended by swell_close().
 *
 * @return 0, or -ECONNREFUSED (no shim there, or another user's), -EINVAL (params), -ENOMEM.
 */
int swell_open(const swell_open_params_t* params, swell_session_t** session);

/**
 * Register one part of one tensor of the training state. Call it before swell_adopt().
 *
 * @param [in] session  From swell_open().
 * @param [in] tensor   field_mask says which fields are set; strings are copied. With
 * SWELL_TENSOR_ADDRESS the memory belongs to the caller and must outlive the session or a switch;
 * its contents are copied at a switch, and are lost if the process dies. Without
 * SWELL_TENSOR_ADDRESS the tensor is in Swell's arena: it is handed over without a copy, and
 * survives the death of the program. With SWELL_TENSOR_DEVICE Swell allocates the tensor on that
 * GPU, and creates the GPU's primary context if there is none: the next program on that GPU maps it
 * without a copy; it is copied within or between GPUs of a node, and through host memory otherwise.
 * With both flags the caller has allocated the memory on that GPU, in its primary context: it is
 * copied within the GPU if this rank's next program uses the same GPU, otherwise through host
 * memory.
 *
 * @return 0, or -EINVAL (swell_last_error() says why), -EBUSY (after swell_adopt()), -ENODEV (no
 * driver, no such GPU, or a GPU that cannot share its memory), -ENOMEM.
 *
 * Source: Suika 3.3; parts, padding and aliases in docs/runtime.md.
 */
int swell_register(swell_session_t* session, const swell_tensor_t* tensor);

/**
 * Take over the registered state. Blocks until this generation begins: do everything slow (imports,
 * device contexts, connections) before this call, while the last generation still trains.
 *
 * Afterwards the memory of the tensors, gradients too, holds the state. If `fresh` is set, memory
 * of Swell is zero and the program must fill it, and memory of the caller is unchanged. If the
 * caller's memory is on a GPU, the call first waits for the work on that GPU.
 *
 * @param [out] generation  The generation and step of the state. May be NULL.
 *
 * @return 0, or -ECANCELED (the switch was cancelled: exit), -EINVAL (the shim refused the
 * tensors), -EBUSY (adopted already), -ECONNRESET (the shim is gone), -ENOMEM.
 */
int swell_adopt(swell_session_t* session, swell_generation_t* generation);

/**
 * Make a session of this process for the generation that SWELL_PREPARE announced. Register the
 * tensors that this rank will hold in that generation, then call swell_offer(). Both sessions exist
 * until the switch; each has its own tensor addresses, role and regions.
 *
 * @param [in]  session  The session that trains, opened with SWELL_OPEN_STAYS or made by an earlier
 * swell_next().
 * @param [out] next     The new session; end it with swell_close(). After another SWELL_PREPARE, or
 * if swell_adopt() returns -ECANCELED, it can no longer be used.
 *
 * @return 0, or -ECANCELED (no other generation is being prepared any longer: train on), -EINVAL,
 * -ENOMEM; swell_last_error(NULL) says why.
 */
int swell_next(const swell_session_t* session, swell_session_t** next);

/**
 * Say that this process cannot train in the generation that SWELL_PREPARE announced. A new process
 * that was started beside a training one says the same about its own generation, and then waits
 * until it is ended. The switch is cancelled at once; if GPUs must be given back, the workers are
 * then asked to exit instead. Without this call the switch waits for swell_offer() or swell_adopt()
 * until its deadline.
 *
 * @param [in] session  The session that trains, not the one made by swell_next(); in a new process
 * its only session, before swell_adopt().
 * @param [in] why      One sentence for the job's output and events; cut to 400 bytes.
 *
 * @return 0, or -EINVAL (no reason was given, no other generation is being prepared, no process
 * trains here, or the shim is of an earlier version), -ECONNRESET (the shim is gone, or did not
 * answer within 10 s).
 */
int swell_decline(swell_session_t* session, const char* why);

/**
 * Like swell_decline(), with the reason that a GPU has too little free memory for the state. If all
 * programs handle the restart signal, the job is then resized by a restart at once.
 *
 * @param [in] session, why   The same as for swell_decline().
 * @param [in] needed_bytes   Bytes that the state takes on the GPU.
 * @param [in] free_bytes     Bytes that are free on the GPU.
 *
 * @return the values of swell_decline().
 */
int swell_lacks_room(swell_session_t* session, const char* why, uint64_t needed_bytes,
                     uint64_t free_bytes);

/**
 * Say that all tensors of the next generation are registered. Waits for the shim's answer (at most
 * 30 s, usually much less than a step), but not for the switch: train on with the other session.
 * The program is not told if the switch is cancelled; the next switch begins with SWELL_PREPARE
 * again.
 *
 * @param [in] next  The session made by swell_next().
 *
 * @return 0, or -EINVAL (the shim refused the tensors; this generation is not offered again),
 * -EBUSY (offered already, or the session was not made by swell_next()), -ECONNRESET (the shim is
 * gone, or did not answer within 30 s).
 */
int swell_offer(swell_session_t* next);

/**
 * Return a variable that swellrun gave the program of this session's generation: RANK, WORLD_SIZE,
 * MASTER_PORT, SWELL_GENERATION, SWELL_PLAN and so on. A session from swell_open() reads the
 * environment.
 *
 * @return its value, valid until swell_close() or until the environment changes; NULL if the
 * variable is not set.
 */
const char* swell_variable(const swell_session_t* session, const char* name);

/**
 * Get the address of a registered part. Call it after swell_adopt().
 *
 * @param [in]  name     The name under which it was registered.
 * @param [in]  index    From 0, in the order in which this name's parts were registered.
 * @param [out] address  Valid until swell_close(); aligned for the tensor's elements, and to 4,096
 * bytes unless the generation took over a range of a larger part. On a GPU it is a CUdeviceptr.
 * When swell_step() hands the state over, it waits for all work on this memory that was launched
 * before the call.
 * @param [out] bytes    Size including padding. May be NULL.
 *
 * @return 0, or -ENOENT (no such part), -EAGAIN (before swell_adopt()).
 */
int swell_address(swell_session_t* session, const char* name, int index, void** address,
                  size_t* bytes);

/**
 * Mark a step boundary: step `step` is done and the state is complete. Costs two memory loads if
 * there is nothing to do.
 *
 * At a switch it blocks until the state has moved. No other thread may read or write the state
 * during this call.
 *
 * @param [in] step  Rises by 1 with each call and is the same on every rank; the first call has the
 * adopted step + 1.
 *
 * @return a swell_action_t, or -EINVAL (a step that does not rise), -EAGAIN (before swell_adopt()),
 * -ECONNRESET (the shim is gone: the program may train on, but not switch).
 */
int swell_step(swell_session_t* session, uint64_t step);

/**
 * Ask whether a program of another generation starts on this rank's node and GPU beside this one,
 * or takes over at the coming step. Call it before swell_step(); it costs two memory loads. The
 * other program takes memory before this one has ended: free the GPU memory that you hold but do
 * not use (torch.cuda.empty_cache()).
 *
 * @return 1 once for each such start and step, otherwise 0; or -EAGAIN (before swell_adopt()).
 */
int swell_make_room(swell_session_t* session);

/**
 * Set the role of this rank in its plan. From then on swell_step() reports this rank's profile to
 * the shim when its times are stable (three windows of five steps, at most 2 % apart), and again
 * when they become stable at other values. While they are stable, only five steps of fifty are
 * measured.
 *
 * @param [in] role  Copied. Without SWELL_ROLE_ACTIVATION the profile can be seen, but no
 * coefficients can be computed from it.
 *
 * @return 0, or -EINVAL (swell_last_error() says why).
 *
 * Source: Suika 3.1 and appendix A.4.
 */
int swell_set_role(swell_session_t* session, const swell_role_t* role);

/**
 * Open a region of this step.
 *
 * Any thread may call it, also while other threads use the session; regions nest within those of
 * their own thread. It reads the host's clock. With SWELL_REGION_STREAM it records a CUDA event on
 * the stream instead; the event's time is read after later steps, so nothing waits for the device.
 *
 * @param [in] region  Copied.
 *
 * @return the region's number, 0 or more, for swell_region_end(); or -EAGAIN (before
 * swell_adopt()), -EINVAL (an unknown kind, a NULL stream, a negative number), -ENOSPC (64 regions
 * are open, or the step has 65,536), -ENODEV (a stream was given, but no CUDA driver could be
 * opened), -ENOMEM. These errors do not set swell_last_error(), because other threads may use it.
 * The profiler ignores a step in which a region failed. In steps that are not measured no clock is
 * read, no event is recorded, and all regions have the same number.
 *
 * Source: Suika 3.1; FlexTrain 6.
 */
int swell_region_begin(swell_session_t* session, const swell_region_t* region);

/**
 * Close a region. Any thread may call it.
 *
 * @param [in] region           Number from swell_region_begin() in this step. swell_step() ends the
 * regions that are still open; the profiler ignores a step in which a pass or the optimizer was
 * still open.
 * @param [in] allocated_bytes  Allocated device memory now; 0: not known.
 *
 * @return 0, or -EINVAL (no such region is open), -EAGAIN (before swell_adopt()).
 */
int swell_region_end(swell_session_t* session, int region, uint64_t allocated_bytes);

/**
 * Set the peak of allocated device memory, as the program's allocator counts it
 * (max_memory_allocated). Without this call the peak is the largest number that the regions gave.
 * Any thread may call it.
 *
 * @return 0, or -EAGAIN (before swell_adopt()).
 */
int swell_memory(swell_session_t* session, uint64_t peak_bytes);

/**
 * Get the times that the profiler has measured so far.
 *
 * @param [out] times  Times of the last five steps that were complete.
 *
 * @return 0, or -EAGAIN (fewer steps so far, or swell_set_role() was not called).
 */
int swell_profile(swell_session_t* session, swell_times_t* times);

/**
 * End a session and unmap its memory; its addresses are invalid afterwards. Does nothing if
 * `session` is NULL, or if another process opened it and this one was forked from that.
 *
 * Memory of a GPU that Swell allocated is unmapped without waiting for launched work, unlike in
 * cudaFree(): work that still reads or writes it then fails with an illegal address, after which
 * the GPU's context cannot be used. First wait for that work (cudaDeviceSynchronize()), or do not
 * call swell_close(): the end of the process unmaps everything, once the driver has stopped its
 * work.
 */
void swell_close(swell_session_t* session);

/**
 * Return why the last call with this session failed, as one sentence; never NULL. With a NULL
 * session it is about the calling thread's last failed swell_open(). Valid until the next call.
 */
const char* swell_last_error(const swell_session_t* session);

#ifdef __cplusplus
}
#endif
#endif
