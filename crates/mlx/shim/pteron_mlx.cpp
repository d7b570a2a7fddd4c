// MLX behind the plain C of `pteron_mlx.h`. One translation unit: MLX's headers take most of the time.
//
// A call is a row of the table at the end of `CALLS`: a name and a function from arguments to arrays. What an op of a
// program means is decided on the other side of the border; here is only which MLX function a name stands for.

#include "pteron_mlx.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlx/backend/cuda/cuda.h"
#include "mlx/backend/metal/metal.h"
#include "mlx/compile_impl.h"
#include "mlx/mlx.h"
#include "mlx/version.h"

namespace mx = mlx::core;

static_assert(MLX_VERSION_NUMERIC == PTERON_MLX_WANTED, "this shim is written for another version of MLX");

struct pteron_mlx_array {
  mx::array array;
};

// Arrays of its own that stand for those of a submission, one a stream: they have the same event, so that who waits for
// them touches no array that another thread may be using. MLX exports no other way to wait for an event.
struct pteron_mlx_flight {
  std::vector<mx::array> witnesses;
};

struct pteron_mlx_function {
  std::function<std::vector<mx::array>(const std::vector<mx::array> &)> call;
  std::uintptr_t id;
};

namespace {

// Messages

// What is said when there is no memory left to say it with; never freed.
char no_memory[] = "out of memory";

char *copied(const char *text) noexcept {
  char *copy = strdup(text);
  return copy ? copy : no_memory;
}

// Runs what may throw; null, or what was thrown as text.
template <typename Body>
char *guarded(Body &&body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const std::exception &error) {
    return copied(error.what());
  } catch (const char *text) {
    return copied(text);
  } catch (...) {
    return copied("MLX threw something that is no exception");
  }
}

[[noreturn]] void refuse(const std::string &why) {
  throw std::invalid_argument(why);
}

// Threads: MLX's streams and traces belong to the thread that made them, and a stream is an operating system's thread
// of its own. They go when their thread does.

struct ThreadEnd {
  ~ThreadEnd() {
    try {
      mx::clear_streams();
    } catch (...) {
    }
  }
};

void enter() {
  // What `clear_streams` touches is made first, so that it is still there when this thread ends.
  static thread_local bool made = [] {
    mx::default_stream(mx::default_device());
    (void)mx::detail::compile_cache();
    return true;
  }();
  (void)made;
  static thread_local ThreadEnd end;
  (void)end;
}

// Dtypes by ExecuTorch's codes

struct Coded {
  int8_t code;
  mx::Dtype dtype;
};

const Coded DTYPES[] = {
    {0, mx::uint8},   {1, mx::int8},    {2, mx::int16}, {3, mx::int32},     {4, mx::int64},   {5, mx::float16}, {6, mx::float32},
    {7, mx::float64}, {11, mx::bool_}, {15, mx::bfloat16}, {27, mx::uint16}, {28, mx::uint32}, {29, mx::uint64},
};

mx::Dtype dtype_of(int64_t code) {
  for (const auto &row : DTYPES) {
    if (row.code == code) return row.dtype;
  }
  refuse("MLX has no dtype of code " + std::to_string(code));
}

int8_t code_of(mx::Dtype dtype) noexcept {
  for (const auto &row : DTYPES) {
    if (row.dtype == dtype) return row.code;
  }
  return -1;
}

int narrow(int64_t value) {
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    refuse(std::to_string(value) + " does not fit 32 bits");
  }
  return static_cast<int>(value);
}

// What a call is given, read by position.
class Operands {
 public:
  explicit Operands(const pteron_mlx_arguments &arguments) : given(arguments) {}

  size_t count() const { return given.array_count; }

  const mx::array &tensor(size_t at) const {
    if (at >= given.array_count || !given.arrays[at]) refuse("operand " + std::to_string(at) + " is absent");
    return given.arrays[at]->array;
  }

  std::optional<mx::array> maybe(size_t at) const {
    if (at >= given.array_count || !given.arrays[at]) return std::nullopt;
    return given.arrays[at]->array;
  }

  std::vector<mx::array> tensors(size_t from = 0) const {
    std::vector<mx::array> list;
    for (size_t at = from; at < given.array_count; ++at) list.push_back(tensor(at));
    return list;
  }

  int64_t wide(size_t at) const {
    if (at >= given.int_count) refuse("integer " + std::to_string(at) + " is absent");
    return given.ints[at];
  }

  int integer(size_t at) const { return narrow(wide(at)); }
  bool flag(size_t at) const { return wide(at) != 0; }
  mx::Dtype dtype(size_t at) const { return dtype_of(wide(at)); }

  double number(size_t at) const {
    if (at >= given.float_count) refuse("number " + std::to_string(at) + " is absent");
    return given.floats[at];
  }

  float real(size_t at) const { return static_cast<float>(number(at)); }
  std::string text() const { return given.text ? given.text : ""; }

  // All integers from one on.
  std::span<const int64_t> rest(size_t from) const {
    return from >= given.int_count ? std::span<const int64_t>{} : std::span(given.ints + from, given.int_count - from);
  }

  // One of several lists of equal length that stand one after the other.
  std::span<const int64_t> part(size_t from, size_t number, size_t parts) const {
    auto all = rest(from);
    size_t length = all.size() / parts;
    return all.subspan(number * length, length);
  }

 private:
  const pteron_mlx_arguments &given;
};

mx::Shape shape_of(std::span<const int64_t> sizes) {
  mx::Shape shape;
  for (int64_t size : sizes) shape.push_back(narrow(size));
  return shape;
}

std::vector<int> ints_of(std::span<const int64_t> values) {
  std::vector<int> ints;
  for (int64_t value : values) ints.push_back(narrow(value));
  return ints;
}

std::pair<int, int> pair_of(std::span<const int64_t> values) {
  return {narrow(values[0]), narrow(values[1])};
}

std::tuple<int, int, int> triple_of(std::span<const int64_t> values) {
  return {narrow(values[0]), narrow(values[1]), narrow(values[2])};
}

using Arrays = std::vector<mx::array>;
using Call = Arrays (*)(const Operands &);

struct Row {
  const char *name;
  Call call;
};

#define CALL(name, value) \
  { name, [](const Operands &on) -> Arrays { return {value}; } }
#define CALLS(name, value) \
  { name, [](const Operands &on) -> Arrays { return value; } }
#define UNARY(name) CALL(#name, mx::name(on.tensor(0)))
#define BINARY(name) CALL(#name, mx::name(on.tensor(0), on.tensor(1)))
// Integers: keepdims, axes.
#define REDUCTION(name) CALL(#name, mx::name(on.tensor(0), ints_of(on.rest(1)), on.flag(0)))
// Integers: keepdims, ddof, axes.
#define DEVIATION(name) CALL(#name, mx::name(on.tensor(0), ints_of(on.rest(2)), on.flag(0), on.integer(1)))

// Integers: groups, then stride, padding, dilation.
mx::array conv(const Operands &on) {
  auto padding = ints_of(on.part(1, 1, 3));
  return mx::conv_general(mx::array(on.tensor(0)), mx::array(on.tensor(1)), ints_of(on.part(1, 0, 3)), padding, padding,
                          ints_of(on.part(1, 2, 3)), std::vector<int>{}, on.integer(0), false, mx::StreamOrDevice{});
}

// Integers: groups, then stride, padding, dilation, output padding.
mx::array conv_transpose(const Operands &on) {
  const auto &x = on.tensor(0), &w = on.tensor(1);
  std::span<const int64_t> stride = on.part(1, 0, 4), padding = on.part(1, 1, 4), dilation = on.part(1, 2, 4),
                           extra = on.part(1, 3, 4);
  int groups = on.integer(0);
  switch (stride.size()) {
    case 1:
      return mx::conv_transpose1d(x, w, narrow(stride[0]), narrow(padding[0]), narrow(dilation[0]), narrow(extra[0]),
                                  groups);
    case 2:
      return mx::conv_transpose2d(x, w, pair_of(stride), pair_of(padding), pair_of(dilation), pair_of(extra), groups);
    case 3:
      return mx::conv_transpose3d(x, w, triple_of(stride), triple_of(padding), triple_of(dilation), triple_of(extra),
                                  groups);
    default:
      refuse("a convolution over " + std::to_string(stride.size()) + " axes");
  }
}

mx::array pad(const Operands &on) {
  std::vector<std::pair<int, int>> widths;
  for (size_t axis = 0; axis < on.tensor(0).ndim(); ++axis) {
    widths.emplace_back(on.integer(2 * axis), on.integer(2 * axis + 1));
  }
  return mx::pad(on.tensor(0), widths, on.tensor(1), on.text());
}

// Arrays x, offset, freqs; integers dims, traditional; numbers base, scale.
mx::array rope(const Operands &on) {
  auto freqs = on.maybe(2);
  auto base = freqs ? std::nullopt : std::optional<float>(on.real(0));
  return mx::fast::rope(on.tensor(0), on.integer(0), on.flag(1), base, on.real(1), on.tensor(1), freqs);
}

// Arrays w, scales, biases, global scale; integers group size, bits, dtype.
mx::array dequantize(const Operands &on) {
  return mx::dequantize(on.tensor(0), on.tensor(1), on.maybe(2), on.integer(0), on.integer(1), on.text(), on.maybe(3),
                        on.dtype(2));
}

// Arrays x, w, scales, biases; integers transpose, group size, bits.
mx::array quantized_matmul(const Operands &on) {
  return mx::quantized_matmul(on.tensor(0), on.tensor(1), on.tensor(2), on.maybe(3), on.flag(0), on.integer(1),
                              on.integer(2), on.text());
}

// The same with indices after the biases; integers transpose, group size, bits, sorted.
mx::array gather_qmm(const Operands &on) {
  return mx::gather_qmm(on.tensor(0), on.tensor(1), on.tensor(2), on.maybe(3), on.maybe(4), on.maybe(5), on.flag(0),
                        on.integer(1), on.integer(2), on.text(), std::nullopt, on.flag(3));
}

// Arrays x, then indices; integers: how many axes, the axes, slice sizes.
mx::array gather(const Operands &on) {
  size_t axes = static_cast<size_t>(on.integer(0));
  auto all = on.rest(1);
  return mx::gather(on.tensor(0), on.tensors(1), ints_of(all.first(axes)), shape_of(all.subspan(axes)));
}

// Pteron's own Metal kernels. Arrays are the inputs. Integers: grid (3), threadgroup (3), how many outputs, for each
// its dtype and rank and sizes, then one for every template argument. The text: kernel name, header, source, input
// names, output names, template names, separated by the unit separator; names in a list by commas. A template argument
// whose name ends in T is a dtype.
Arrays metal_kernel(const Operands &on) {
  auto cut = [](const std::string &text, char at) {
    std::vector<std::string> parts(1);
    for (char c : text) {
      if (c == at) {
        parts.emplace_back();
      } else {
        parts.back().push_back(c);
      }
    }
    return parts;
  };
  auto fields = cut(on.text(), '\x1f');
  if (fields.size() != 6) refuse("a Metal kernel of " + std::to_string(fields.size()) + " fields");
  size_t at = 0;
  auto next = [&] { return on.wide(at++); };
  auto three = [&] {
    int x = narrow(next()), y = narrow(next()), z = narrow(next());
    return std::tuple{x, y, z};
  };
  auto grid = three(), threadgroup = three();
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (int64_t outputs = next(); outputs > 0; --outputs) {
    dtypes.push_back(dtype_of(next()));
    mx::Shape shape;
    for (int64_t rank = next(); rank > 0; --rank) shape.push_back(narrow(next()));
    shapes.push_back(std::move(shape));
  }
  std::vector<std::pair<std::string, mx::fast::TemplateArg>> templates;
  for (const auto &name : cut(fields[5], ',')) {
    if (name.ends_with('T')) {
      templates.emplace_back(name, dtype_of(next()));
    } else {
      templates.emplace_back(name, narrow(next()));
    }
  }
  auto kernel = mx::fast::metal_kernel(fields[0], cut(fields[3], ','), cut(fields[4], ','), fields[2], fields[1]);
  return kernel(on.tensors(), shapes, dtypes, grid, threadgroup, templates, std::nullopt, false, {});
}

const Row TABLE[] = {
    // One tensor to one.
    UNARY(abs), UNARY(negative), UNARY(square), UNARY(sign), UNARY(floor), UNARY(ceil), UNARY(trunc), UNARY(sigmoid),
    UNARY(erf), UNARY(exp), UNARY(expm1), UNARY(log), UNARY(log2), UNARY(log10), UNARY(log1p), UNARY(sqrt),
    UNARY(rsqrt), UNARY(reciprocal), UNARY(sin), UNARY(cos), UNARY(tan), UNARY(arcsin), UNARY(arccos), UNARY(arctan),
    UNARY(sinh), UNARY(cosh), UNARY(tanh), UNARY(arcsinh), UNARY(arccosh), UNARY(arctanh), UNARY(logical_not),
    UNARY(bitwise_invert), UNARY(contiguous),
    CALL("round", mx::round(on.tensor(0), on.integer(0))),
    CALL("astype", mx::astype(on.tensor(0), on.dtype(0))),
    CALL("view", mx::view(on.tensor(0), on.dtype(0))),

    // Two tensors to one.
    BINARY(add), BINARY(subtract), BINARY(multiply), BINARY(divide), BINARY(floor_divide), BINARY(remainder),
    BINARY(power), BINARY(maximum), BINARY(minimum), BINARY(arctan2), BINARY(logaddexp), BINARY(less),
    BINARY(less_equal), BINARY(greater), BINARY(greater_equal), BINARY(equal), BINARY(not_equal), BINARY(logical_and),
    BINARY(logical_or), BINARY(bitwise_and), BINARY(bitwise_or), BINARY(bitwise_xor), BINARY(right_shift),
    BINARY(matmul),
    CALL("where", mx::where(on.tensor(0), on.tensor(1), on.tensor(2))),
    CALL("clip", mx::clip(on.tensor(0), on.maybe(1), on.maybe(2))),

    // Numbers to tensors.
    CALL("full", mx::full(shape_of(on.rest(0)), on.tensor(0))),
    CALL("arange", mx::arange(on.number(0), on.number(1), on.number(2), on.dtype(0))),
    CALL("tri", mx::tri(on.integer(0), on.integer(1), on.integer(2), on.dtype(3))),
    CALL("tril", mx::tril(on.tensor(0), on.integer(0))),
    CALL("triu", mx::triu(on.tensor(0), on.integer(0))),

    // Folding axes.
    REDUCTION(sum), REDUCTION(prod), REDUCTION(mean), REDUCTION(max), REDUCTION(min), REDUCTION(any), REDUCTION(all),
    REDUCTION(median), REDUCTION(logsumexp), DEVIATION(var), DEVIATION(std),
    CALL("argmax", mx::argmax(on.tensor(0), on.integer(0), on.flag(1))),
    CALL("argmin", mx::argmin(on.tensor(0), on.integer(0), on.flag(1))),
    CALL("cumsum", mx::cumsum(on.tensor(0), on.integer(0), on.flag(1), on.flag(2))),
    CALL("softmax", mx::softmax(on.tensor(0), on.integer(0), true)),
    CALL("sort", mx::sort(on.tensor(0), on.integer(0))),
    CALL("argsort", mx::argsort(on.tensor(0), on.integer(0))),
    CALL("partition", mx::partition(on.tensor(0), on.integer(1), on.integer(0))),
    CALL("argpartition", mx::argpartition(on.tensor(0), on.integer(1), on.integer(0))),

    // Shapes.
    CALL("reshape", mx::reshape(on.tensor(0), shape_of(on.rest(0)))),
    CALL("broadcast_to", mx::broadcast_to(on.tensor(0), shape_of(on.rest(0)))),
    CALL("transpose", mx::transpose(on.tensor(0), ints_of(on.rest(0)))),
    CALL("flip", mx::flip(on.tensor(0), ints_of(on.rest(0)))),
    CALL("slice", mx::slice(on.tensor(0), shape_of(on.part(0, 0, 3)), shape_of(on.part(0, 1, 3)),
                            shape_of(on.part(0, 2, 3)))),
    CALL("slice_update", mx::slice_update(on.tensor(0), on.tensor(1), shape_of(on.part(0, 0, 3)),
                                          shape_of(on.part(0, 1, 3)), shape_of(on.part(0, 2, 3)))),
    CALLS("split", mx::split(on.tensor(0), shape_of(on.rest(1)), on.integer(0))),
    CALL("concatenate", mx::concatenate(on.tensors(), on.integer(0))),
    CALL("stack", mx::stack(on.tensors(), on.integer(0))),
    CALL("tile", mx::tile(on.tensor(0), ints_of(on.rest(0)))),
    CALL("repeat", mx::repeat(on.tensor(0), on.integer(0), on.integer(1))),
    CALL("roll", mx::roll(on.tensor(0), on.integer(0), on.integer(1))),
    CALL("as_strided", mx::as_strided(on.tensor(0), shape_of(on.part(1, 0, 2)),
                                      mx::Strides(on.part(1, 1, 2).begin(), on.part(1, 1, 2).end()),
                                      static_cast<size_t>(on.wide(0)))),
    CALL("pad", pad(on)),

    // Elements by index.
    CALL("take", mx::take(on.tensor(0), on.tensor(1), on.integer(0))),
    CALL("take_along_axis", mx::take_along_axis(on.tensor(0), on.tensor(1), on.integer(0))),
    CALL("gather", gather(on)),
    CALL("scatter", mx::scatter(on.tensor(0), on.tensor(1), on.tensor(2), on.integer(0))),
    CALL("scatter_add_axis", mx::scatter_add_axis(on.tensor(0), on.tensor(1), on.tensor(2), on.integer(0))),

    // Sums of products.
    CALL("addmm", mx::addmm(on.tensor(0), on.tensor(1), on.tensor(2), on.real(0), on.real(1))),
    CALL("conv", conv(on)),
    CALL("conv_transpose", conv_transpose(on)),
    CALL("gather_mm", mx::gather_mm(on.tensor(0), on.tensor(1), on.maybe(2), on.maybe(3), on.flag(0))),
    CALL("dequantize", dequantize(on)),
    CALL("quantized_matmul", quantized_matmul(on)),
    CALL("gather_qmm", gather_qmm(on)),

    // Norms, positions, attention.
    CALL("rms_norm", mx::fast::rms_norm(on.tensor(0), on.maybe(1), on.real(0))),
    CALL("layer_norm", mx::fast::layer_norm(on.tensor(0), on.maybe(1), on.maybe(2), on.real(0))),
    CALL("rope", rope(on)),
    CALL("attention", mx::fast::scaled_dot_product_attention(on.tensor(0), on.tensor(1), on.tensor(2), on.real(0),
                                                             on.text(), on.maybe(3))),

    // Integers: width, shape.
    CALL("random_bits", mx::random::bits(shape_of(on.rest(1)), on.integer(0), on.tensor(0))),
    CALLS("metal_kernel", metal_kernel(on)),
};

// Results as handles of the caller's; all of them or none.
void give(Arrays &&arrays, pteron_mlx_results &results) {
  if (arrays.size() > results.capacity) {
    refuse("MLX gives " + std::to_string(arrays.size()) + " results, there is room for " +
           std::to_string(results.capacity));
  }
  std::vector<std::unique_ptr<pteron_mlx_array>> made;
  for (auto &array : arrays) made.push_back(std::make_unique<pteron_mlx_array>(std::move(array)));
  for (size_t at = 0; at < made.size(); ++at) results.arrays[at] = made[at].release();
  results.count = arrays.size();
}

Arrays arrays_of(const pteron_mlx_array *const *handles, size_t count) {
  Arrays arrays;
  arrays.reserve(count);
  for (size_t at = 0; at < count; ++at) arrays.push_back(handles[at]->array);
  return arrays;
}

mx::Shape shape_of(const pteron_mlx_data &data) {
  return mx::Shape(data.shape, data.shape + data.rank);
}

size_t size_of(const mx::Shape &shape, mx::Dtype dtype) {
  size_t bytes = mx::size_of(dtype);
  for (auto size : shape) bytes *= static_cast<size_t>(size);
  return bytes;
}

// What a compiled function is traced by; ends with the last holder of the function.
struct Tracer {
  pteron_mlx_trace trace;
  void *context;
  pteron_mlx_drop drop;

  Tracer(pteron_mlx_trace trace, void *context, pteron_mlx_drop drop) : trace(trace), context(context), drop(drop) {}
  Tracer(const Tracer &) = delete;
  Tracer &operator=(const Tracer &) = delete;
  ~Tracer() { drop(context); }

  Arrays operator()(const Arrays &inputs) const {
    std::vector<pteron_mlx_array> held;
    held.reserve(inputs.size());
    std::vector<const pteron_mlx_array *> handles;
    for (const auto &input : inputs) handles.push_back(&held.emplace_back(pteron_mlx_array{input}));
    std::vector<pteron_mlx_array *> made(MOST_RESULTS);
    pteron_mlx_results results{made.data(), made.size(), 0};
    char *problem = trace(context, handles.data(), handles.size(), &results);
    Arrays outputs;
    for (size_t at = 0; at < results.count; ++at) {
      outputs.push_back(std::move(made[at]->array));
      delete made[at];
    }
    if (problem) {
      std::string text(problem);
      std::free(problem);
      throw std::runtime_error(text);
    }
    return outputs;
  }

  static constexpr size_t MOST_RESULTS = 1 << 16;
};

uint64_t memory_of(const mx::Device &device) {
  const auto &info = mx::device_info(device);
  for (const char *key : {"memory_size", "total_memory"}) {
    auto found = info.find(key);
    if (found == info.end()) continue;
    if (const auto *bytes = std::get_if<size_t>(&found->second)) return *bytes;
  }
  return 0;
}

// Whether a compiled function is replayed: MLX does not say, but runs the function again where it cannot compile.
bool can_compile() {
  auto traces = std::make_shared<int>(0);
  auto function = mx::compile([traces](const Arrays &inputs) {
    ++*traces;
    return Arrays{mx::abs(inputs[0])};
  });
  mx::array zero(0.0f);
  function({zero});
  function({zero});
  return *traces == 1;
}

}  // namespace

extern "C" {

uint32_t pteron_mlx_abi(void) {
  return PTERON_MLX_ABI;
}

const char *pteron_mlx_version(void) {
  return mx::version();
}

void pteron_mlx_text_free(char *text) {
  if (text != no_memory) std::free(text);
}

char *pteron_mlx_device(pteron_mlx_device_info *info) {
  return guarded([&] {
    enter();
    const auto &device = mx::default_device();
    info->kind = device == mx::Device::cpu ? 0 : mx::metal::is_available() ? 1 : 2;
    info->memory_bytes = memory_of(device);
    info->can_compile = can_compile();
  });
}

char *pteron_mlx_find(const char *name, uint32_t *call) {
  for (uint32_t at = 0; at < std::size(TABLE); ++at) {
    if (std::strcmp(TABLE[at].name, name) == 0) {
      *call = at;
      return nullptr;
    }
  }
  return copied("the shim has no such call");
}

char *pteron_mlx_apply(uint32_t call, const pteron_mlx_arguments *arguments, pteron_mlx_results *results) {
  return guarded([&] {
    enter();
    if (call >= std::size(TABLE)) refuse("no call " + std::to_string(call));
    give(TABLE[call].call(Operands(*arguments)), *results);
  });
}

char *pteron_mlx_copy(const pteron_mlx_data *data, pteron_mlx_array **out) {
  return guarded([&] {
    enter();
    auto shape = shape_of(*data);
    auto dtype = dtype_of(data->dtype);
    if (size_of(shape, dtype) != data->byte_count) refuse("data of another size than the shape's");
    auto memory = mx::allocator::malloc(data->byte_count);
    auto buffer = memory.buffer();
    if (data->byte_count > 0) {
      if (!buffer.raw_ptr()) {
        refuse("there is no memory for " + std::to_string(data->byte_count) + " bytes");
      }
      std::memcpy(buffer.raw_ptr(), data->bytes, data->byte_count);
    }
    *out = new pteron_mlx_array{mx::array(std::move(memory), std::move(shape), dtype)};
  });
}

char *pteron_mlx_wrap(const pteron_mlx_data *data, void *context, pteron_mlx_drop drop, pteron_mlx_array **out) {
  // Dropped once, whatever happens: by MLX, or here when it never came to that.
  std::shared_ptr<void> owner(context, drop);
  return guarded([&] {
    enter();
    auto shape = shape_of(*data);
    auto dtype = dtype_of(data->dtype);
    if (size_of(shape, dtype) != data->byte_count) refuse("data of another size than the shape's");
    // MLX never writes to memory that it does not own: such an array is not donated.
    auto *bytes = const_cast<void *>(data->bytes);
    auto release = [owner](void *) mutable { owner.reset(); };
    *out = new pteron_mlx_array{mx::array(bytes, std::move(shape), dtype, release)};
  });
}

char *pteron_mlx_residency(const pteron_mlx_array *array, const void **address, size_t *resident_bytes) {
  return guarded([&] {
    const auto *data = array->array.data<char>();
    size_t bytes = array->array.nbytes();
    *address = data;
    *resident_bytes = bytes;
    if (bytes == 0) return;
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    auto first = reinterpret_cast<uintptr_t>(data) / page * page;
    size_t length = reinterpret_cast<uintptr_t>(data) + bytes - first;
#ifdef __APPLE__
    std::vector<char> pages((length + page - 1) / page);
#else
    std::vector<unsigned char> pages((length + page - 1) / page);
#endif
    if (mincore(reinterpret_cast<void *>(first), length, pages.data()) != 0) {
      refuse("the system does not say whether memory is resident");
    }
    size_t missing = 0;
    for (auto state : pages) missing += (state & 1) ? 0 : page;
    *resident_bytes = bytes - std::min(bytes, missing);
  });
}

void pteron_mlx_describe(const pteron_mlx_array *array, int8_t *dtype, const int32_t **shape, size_t *rank) {
  *dtype = code_of(array->array.dtype());
  *shape = array->array.shape().data();
  *rank = array->array.ndim();
}

char *pteron_mlx_read(const pteron_mlx_array *array, void *into, size_t byte_count) {
  return guarded([&] {
    enter();
    auto whole = array->array;
    // What is there is read at once: a copy would have to queue behind whatever the stream is busy with.
    if (whole.has_primitive() || !whole.is_available() || !whole.flags().row_contiguous) {
      whole = mx::contiguous(whole);
      whole.eval();
    }
    if (whole.nbytes() != byte_count) refuse("the array has " + std::to_string(whole.nbytes()) + " bytes");
    if (byte_count > 0) std::memcpy(into, whole.data<char>(), byte_count);
  });
}

char *pteron_mlx_eval(const pteron_mlx_array *const *arrays, size_t count) {
  return guarded([&] {
    enter();
    mx::eval(arrays_of(arrays, count));
  });
}

char *pteron_mlx_submit(const pteron_mlx_array *const *arrays, size_t count, pteron_mlx_flight **flight) {
  return guarded([&] {
    enter();
    auto list = arrays_of(arrays, count);
    mx::async_eval(list);
    auto made = std::make_unique<pteron_mlx_flight>();
    // One event a stream: what is computed on it later comes after.
    for (auto &array : list) {
      auto &event = array.event();
      if (!event.valid()) continue;
      auto same = [&](const mx::array &known) { return known.event().stream() == event.stream(); };
      if (std::any_of(made->witnesses.begin(), made->witnesses.end(), same)) continue;
      mx::array witness(false);
      witness.attach_event(event);
      witness.set_status(mx::array::Status::evaluated);
      made->witnesses.push_back(std::move(witness));
    }
    *flight = made.release();
  });
}

char *pteron_mlx_flight_wait(pteron_mlx_flight *flight) {
  return guarded([&] {
    for (auto &witness : flight->witnesses) witness.wait();
  });
}

void pteron_mlx_flight_release(pteron_mlx_flight *flight) {
  delete flight;
}

char *pteron_mlx_land(const pteron_mlx_array *array) {
  return guarded([&] {
    if (!array->array.is_available() || array->array.has_primitive()) {
      refuse("an array that was computed is not available");
    }
  });
}

pteron_mlx_array *pteron_mlx_share(const pteron_mlx_array *array) {
  return new (std::nothrow) pteron_mlx_array{array->array};
}

void pteron_mlx_release(pteron_mlx_array *array) {
  delete array;
}

char *pteron_mlx_compile(pteron_mlx_trace trace, void *context, pteron_mlx_drop drop, pteron_mlx_function **out) {
  // Numbers of our own: MLX would take an address, which another function may get while a thread still remembers
  // what it traced for the first one.
  static std::atomic<std::uintptr_t> next{1};
  return guarded([&] {
    enter();
    auto tracer = std::make_shared<Tracer>(trace, context, drop);
    auto id = next++;
    auto call = mx::detail::compile([tracer](const Arrays &inputs) { return (*tracer)(inputs); }, id);
    *out = new pteron_mlx_function{std::move(call), id};
  });
}

char *pteron_mlx_call(const pteron_mlx_function *function, const pteron_mlx_array *const *inputs, size_t input_count,
                      pteron_mlx_results *results) {
  return guarded([&] {
    enter();
    give(function->call(arrays_of(inputs, input_count)), *results);
  });
}

void pteron_mlx_function_release(pteron_mlx_function *function) {
  char *problem = guarded([&] { mx::detail::compile_erase(mx::detail::compile_cache(), function->id); });
  pteron_mlx_text_free(problem);
  delete function;
}

}  // extern "C"
