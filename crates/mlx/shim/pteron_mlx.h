// The border between Pteron and MLX: plain C, so that Rust needs neither MLX's headers nor its ABI.
//
// Every function that can fail returns null, or a message that the caller frees with `pteron_mlx_text_free`. No
// exception leaves a function. Every array and function handle that is given out has one owner, who releases it.

#ifndef PTERON_MLX_H
#define PTERON_MLX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The library is built with everything else hidden.
#pragma GCC visibility push(default)

// Changes with every change of this file; the opener compares it.
#define PTERON_MLX_ABI 2u

typedef struct pteron_mlx_array pteron_mlx_array;
typedef struct pteron_mlx_function pteron_mlx_function;
typedef struct pteron_mlx_flight pteron_mlx_flight;

// What a call is given. Absent arrays are null; what each list holds is the call's own affair.
typedef struct pteron_mlx_arguments {
  const pteron_mlx_array *const *arrays;
  size_t array_count;
  const int64_t *ints;
  size_t int_count;
  const double *floats;
  size_t float_count;
  const char *text;
} pteron_mlx_arguments;

// Where a call puts its results: room for `capacity` handles; `count` says how many were made.
typedef struct pteron_mlx_results {
  pteron_mlx_array **arrays;
  size_t capacity;
  size_t count;
} pteron_mlx_results;

// Host data: dtype by ExecuTorch's code, row-major.
typedef struct pteron_mlx_data {
  const void *bytes;
  size_t byte_count;
  int8_t dtype;
  const int32_t *shape;
  size_t rank;
} pteron_mlx_data;

typedef struct pteron_mlx_device_info {
  // 0 CPU, 1 Metal, 2 CUDA.
  int32_t kind;
  // Of the device's own or shared with it; 0 where unknown.
  uint64_t memory_bytes;
  // Whether MLX can build fused kernels for it now.
  int32_t can_compile;
} pteron_mlx_device_info;

// Called while a function is traced, on the thread that calls it. Null, or a message made by `malloc`.
typedef char *(*pteron_mlx_trace)(void *context, const pteron_mlx_array *const *inputs, size_t input_count,
                                  pteron_mlx_results *results);
typedef void (*pteron_mlx_drop)(void *context);

uint32_t pteron_mlx_abi(void);
const char *pteron_mlx_version(void);
void pteron_mlx_text_free(char *text);
char *pteron_mlx_device(pteron_mlx_device_info *info);

// The number of a call, by its name; it stays the same while the library is open.
char *pteron_mlx_find(const char *name, uint32_t *call);
char *pteron_mlx_apply(uint32_t call, const pteron_mlx_arguments *arguments, pteron_mlx_results *results);

// Copies into memory of MLX's own.
char *pteron_mlx_copy(const pteron_mlx_data *data, pteron_mlx_array **out);
// Lets MLX use the memory itself where it can; `drop(context)` is called when nobody needs it any more, which is
// before this returns when MLX copied after all.
char *pteron_mlx_wrap(const pteron_mlx_data *data, void *context, pteron_mlx_drop drop, pteron_mlx_array **out);
// Where the elements lie, and how many bytes of them are in main memory now. The array must be evaluated.
char *pteron_mlx_residency(const pteron_mlx_array *array, const void **address, size_t *resident_bytes);

// The shape belongs to the array.
void pteron_mlx_describe(const pteron_mlx_array *array, int8_t *dtype, const int32_t **shape, size_t *rank);
// The elements, row-major; waits for them.
char *pteron_mlx_read(const pteron_mlx_array *array, void *into, size_t byte_count);
char *pteron_mlx_eval(const pteron_mlx_array *const *arrays, size_t count);
// Hands arrays over to be computed, and does not wait for them. Who waits for the flight touches none of the arrays, so
// that any thread may; a flight is waited for once.
char *pteron_mlx_submit(const pteron_mlx_array *const *arrays, size_t count, pteron_mlx_flight **flight);
char *pteron_mlx_flight_wait(pteron_mlx_flight *flight);
void pteron_mlx_flight_release(pteron_mlx_flight *flight);
// Marks an array as computed whose flight was waited for: from then on nothing writes to it. Refuses any other.
char *pteron_mlx_land(const pteron_mlx_array *array);
// Another handle of the same array; null when memory is short.
pteron_mlx_array *pteron_mlx_share(const pteron_mlx_array *array);
void pteron_mlx_release(pteron_mlx_array *array);

// A function that is traced once per thread and replayed for inputs of the same dtypes and shapes.
char *pteron_mlx_compile(pteron_mlx_trace trace, void *context, pteron_mlx_drop drop, pteron_mlx_function **out);
char *pteron_mlx_call(const pteron_mlx_function *function, const pteron_mlx_array *const *inputs,
                      size_t input_count, pteron_mlx_results *results);
void pteron_mlx_function_release(pteron_mlx_function *function);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
