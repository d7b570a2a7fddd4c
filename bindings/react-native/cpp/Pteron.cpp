// Calls of the C library from JavaScript. Each runs on a thread of its own; only the JavaScript thread touches values of
// JavaScript's, which threads know by number, so that a runtime that ends leaves no thread with something of its own.

#include "Pteron.h"
#include "pteron.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

namespace pteron {

namespace jsi = facebook::jsi;

namespace {

/// What a call came to: a value, or the library's error as JSON.
struct Outcome {
  std::optional<std::string> failed;
  std::function<jsi::Value(jsi::Runtime&)> value;
};

struct Model {
  pteron_model* held;
  explicit Model(pteron_model* held) : held(held) {}
  Model(const Model&) = delete;
  ~Model() { pteron_model_free(held); }
};

struct Chat {
  pteron_chat* held;
  /// A conversation does not outlive its model.
  std::shared_ptr<Model> model;
  Chat(pteron_chat* held, std::shared_ptr<Model> model) : held(held), model(std::move(model)) {}
  Chat(const Chat&) = delete;
  ~Chat() { pteron_chat_free(held); }
};

/// Values of JavaScript's that wait for a thread.
struct Waiting {
  jsi::Function resolve;
  jsi::Function reject;
  std::optional<jsi::Function> listener;
};

std::string taken(char* text) {
  std::string copy = text == nullptr ? "" : text;
  pteron_text_free(text);
  return copy;
}

Outcome failed(pteron_error* error) {
  std::string json = pteron_error_json(error);
  pteron_error_free(error);
  return {json, nullptr};
}

Outcome text(char* json) {
  return {std::nullopt, [json = taken(json)](jsi::Runtime& runtime) {
            return jsi::Value(jsi::String::createFromUtf8(runtime, json));
          }};
}

Outcome number(double value) {
  return {std::nullopt, [value](jsi::Runtime&) { return jsi::Value(value); }};
}

Outcome nothing() {
  return {std::nullopt, [](jsi::Runtime&) { return jsi::Value::undefined(); }};
}

class Library : public std::enable_shared_from_this<Library> {
 public:
  Library(jsi::Runtime& runtime, std::shared_ptr<facebook::react::CallInvoker> invoker)
      : runtime_(runtime), invoker_(std::move(invoker)) {}

  /// Ends all that runs, and waits for it: threads hold what the library has lent.
  ~Library() {
    isGone_ = true;
    for (auto& [handle, model] : models_) pteron_model_dispose(model->held);
    std::unique_lock lock(running_);
    ended_.wait(lock, [this] { return count_ == 0; });
  }

  jsi::Object functions() {
    jsi::Object object(runtime_);
    auto self = weak_from_this();
    auto add = [&](const char* name, unsigned count, auto method) {
      auto call = [self, method](jsi::Runtime& runtime, const jsi::Value&, const jsi::Value* given, size_t size) {
        auto library = self.lock();
        if (!library) throw jsi::JSError(runtime, "the library has ended");
        return ((*library).*method)(given, size);
      };
      auto id = jsi::PropNameID::forAscii(runtime_, name);
      object.setProperty(runtime_, name, jsi::Function::createFromHostFunction(runtime_, id, count, call));
    };
    add("open", 3, &Library::open);
    add("cancel", 1, &Library::cancel);
    add("requirements", 2, &Library::requirements);
    add("chat", 2, &Library::chat);
    add("send", 4, &Library::send);
    add("sendResult", 3, &Library::sendResult);
    add("stop", 1, &Library::stop);
    add("rewind", 2, &Library::rewind);
    add("history", 1, &Library::history);
    add("cacheState", 1, &Library::cacheState);
    add("disposeChat", 1, &Library::disposeChat);
    add("disposeModel", 1, &Library::disposeModel);
    return object;
  }

 private:
  jsi::Runtime& runtime_;
  std::shared_ptr<facebook::react::CallInvoker> invoker_;
  std::unordered_map<int, std::shared_ptr<Model>> models_;
  std::unordered_map<int, std::shared_ptr<Chat>> chats_;
  std::unordered_map<int, Waiting> waiting_;
  /// Openings that nobody wants any more, by call.
  std::unordered_map<int, std::shared_ptr<std::atomic<bool>>> openings_;
  int last_ = 0;
  std::atomic<bool> isGone_{false};
  std::mutex running_;
  std::condition_variable ended_;
  int count_ = 0;

  /// What a listener of the library's tells of: the call, and whose it is.
  struct Told {
    std::weak_ptr<Library> library;
    std::shared_ptr<facebook::react::CallInvoker> invoker;
    int call;
    std::shared_ptr<std::atomic<bool>> isCancelled;
  };

  std::string string(const jsi::Value* given, size_t size, size_t at) {
    if (at >= size || !given[at].isString()) throw jsi::JSError(runtime_, "a text is missing");
    return given[at].getString(runtime_).utf8(runtime_);
  }

  int handle(const jsi::Value* given, size_t size, size_t at) {
    if (at >= size || !given[at].isNumber()) throw jsi::JSError(runtime_, "a number is missing");
    return static_cast<int>(given[at].getNumber());
  }

  [[noreturn]] void disposed(const char* what) {
    throw jsi::JSError(runtime_, std::string(R"({"kind":"Disposed","reason":"this )") + what + R"( was disposed of"})");
  }

  std::shared_ptr<Chat> chatAt(const jsi::Value* given, size_t size, size_t at) {
    auto found = chats_.find(handle(given, size, at));
    if (found == chats_.end()) disposed("chat");
    return found->second;
  }

  std::shared_ptr<Model> modelAt(const jsi::Value* given, size_t size, size_t at) {
    auto found = models_.find(handle(given, size, at));
    if (found == models_.end()) disposed("model");
    return found->second;
  }

  std::optional<jsi::Function> listener(const jsi::Value* given, size_t size, size_t at) {
    if (at >= size || !given[at].isObject()) return std::nullopt;
    auto object = given[at].getObject(runtime_);
    if (!object.isFunction(runtime_)) return std::nullopt;
    return object.getFunction(runtime_);
  }

  Told told(int call, std::shared_ptr<std::atomic<bool>> isCancelled = nullptr) {
    return {weak_from_this(), invoker_, call, std::move(isCancelled)};
  }

  /// Tells a call's listener something, on the JavaScript thread.
  static void tell(const Told& told, std::string words) {
    told.invoker->invokeAsync([library = told.library, call = told.call, words = std::move(words)](jsi::Runtime& runtime) {
      auto here = library.lock();
      if (!here) return;
      auto found = here->waiting_.find(call);
      if (found == here->waiting_.end() || !found->second.listener) return;
      found->second.listener->call(runtime, jsi::String::createFromUtf8(runtime, words));
    });
  }

  static bool piece(const char* text, size_t length, void* user) {
    tell(*static_cast<Told*>(user), std::string(text, length));
    return true;
  }

  static bool progress(const char* event, void* user) {
    auto& told = *static_cast<Told*>(user);
    if (told.isCancelled && *told.isCancelled) return false;
    tell(told, event);
    return true;
  }

  /// A promise of what `work` comes to on a thread of its own.
  jsi::Value promised(int call, std::optional<jsi::Function> listener, std::function<Outcome()> work) {
    auto promise = runtime_.global().getPropertyAsFunction(runtime_, "Promise");
    auto begin = [this, call, &listener](jsi::Runtime& runtime, const jsi::Value&, const jsi::Value* given, size_t) {
      auto function = [&](size_t at) { return given[at].getObject(runtime).getFunction(runtime); };
      waiting_.emplace(call, Waiting{function(0), function(1), std::move(listener)});
      return jsi::Value::undefined();
    };
    auto id = jsi::PropNameID::forAscii(runtime_, "begin");
    auto made = promise.callAsConstructor(runtime_, jsi::Function::createFromHostFunction(runtime_, id, 2, begin));
    {
      std::lock_guard lock(running_);
      count_++;
    }
    // The destructor waits for this thread, so that `this` is there as long as it runs.
    std::thread([this, call, invoker = invoker_, self = weak_from_this(), work = std::move(work)]() mutable {
      auto outcome = std::make_shared<Outcome>(work());
      work = nullptr;
      invoker->invokeAsync([self, call, outcome](jsi::Runtime& runtime) {
        if (auto library = self.lock()) library->settle(runtime, call, *outcome);
      });
      std::lock_guard lock(running_);
      count_--;
      ended_.notify_all();
    }).detach();
    return made;
  }

  void settle(jsi::Runtime& runtime, int call, const Outcome& outcome) {
    auto found = waiting_.extract(call);
    openings_.erase(call);
    if (found.empty()) return;
    if (outcome.failed) {
      auto error = runtime.global().getPropertyAsFunction(runtime, "Error");
      auto words = jsi::String::createFromUtf8(runtime, *outcome.failed);
      found.mapped().reject.call(runtime, error.callAsConstructor(runtime, words));
    } else {
      found.mapped().resolve.call(runtime, outcome.value(runtime));
    }
  }

  jsi::Value open(const jsi::Value* given, size_t size) {
    auto source = string(given, size, 0);
    auto options = string(given, size, 1);
    int call = ++last_;
    auto isCancelled = std::make_shared<std::atomic<bool>>(false);
    openings_.emplace(call, isCancelled);
    auto watch = std::make_shared<Told>(told(call, isCancelled));
    auto work = [this, source, options, watch]() -> Outcome {
      pteron_model* model = nullptr;
      pteron_error* error = nullptr;
      if (pteron_model_open(source.c_str(), options.c_str(), progress, watch.get(), &model, &error) != PTERON_OK) {
        return failed(error);
      }
      auto held = std::make_shared<Model>(model);
      // Kept on the JavaScript thread, where the tables are.
      return {std::nullopt, [this, held](jsi::Runtime&) {
                models_.emplace(++last_, held);
                return jsi::Value(last_);
              }};
    };
    jsi::Object opening(runtime_);
    opening.setProperty(runtime_, "call", call);
    opening.setProperty(runtime_, "model", promised(call, listener(given, size, 2), work));
    return opening;
  }

  jsi::Value cancel(const jsi::Value* given, size_t size) {
    auto found = openings_.find(handle(given, size, 0));
    if (found != openings_.end()) *found->second = true;
    return jsi::Value::undefined();
  }

  jsi::Value requirements(const jsi::Value* given, size_t size) {
    auto work = [source = string(given, size, 0), options = string(given, size, 1)]() -> Outcome {
      char* json = nullptr;
      pteron_error* error = nullptr;
      auto status = pteron_requirements(source.c_str(), options.c_str(), &json, &error);
      return status == PTERON_OK ? text(json) : failed(error);
    };
    return promised(++last_, std::nullopt, work);
  }

  jsi::Value chat(const jsi::Value* given, size_t size) {
    auto work = [this, model = modelAt(given, size, 0), options = string(given, size, 1)]() -> Outcome {
      pteron_chat* chat = nullptr;
      pteron_error* error = nullptr;
      if (pteron_chat_new(model->held, options.c_str(), &chat, &error) != PTERON_OK) return failed(error);
      auto held = std::make_shared<Chat>(chat, model);
      return {std::nullopt, [this, held](jsi::Runtime&) {
                chats_.emplace(++last_, held);
                return jsi::Value(last_);
              }};
    };
    return promised(++last_, std::nullopt, work);
  }

  jsi::Value send(const jsi::Value* given, size_t size) {
    int call = ++last_;
    auto hear = std::make_shared<Told>(told(call));
    auto work = [chat = chatAt(given, size, 0), asked = string(given, size, 1), options = string(given, size, 2),
                 hear]() -> Outcome {
      char* answer = nullptr;
      pteron_error* error = nullptr;
      auto status =
          pteron_chat_send(chat->held, asked.c_str(), options.c_str(), piece, hear.get(), &answer, &error);
      return status == PTERON_OK ? text(answer) : failed(error);
    };
    return promised(call, listener(given, size, 3), work);
  }

  jsi::Value sendResult(const jsi::Value* given, size_t size) {
    int call = ++last_;
    auto hear = std::make_shared<Told>(told(call));
    auto work = [chat = chatAt(given, size, 0), found = string(given, size, 1), hear]() -> Outcome {
      char* answer = nullptr;
      pteron_error* error = nullptr;
      auto status = pteron_chat_send_result(chat->held, found.c_str(), piece, hear.get(), &answer, &error);
      return status == PTERON_OK ? text(answer) : failed(error);
    };
    return promised(call, listener(given, size, 2), work);
  }

  jsi::Value stop(const jsi::Value* given, size_t size) {
    pteron_chat_stop(chatAt(given, size, 0)->held);
    return jsi::Value::undefined();
  }

  jsi::Value rewind(const jsi::Value* given, size_t size) {
    auto turns = static_cast<uint64_t>(handle(given, size, 1));
    auto work = [chat = chatAt(given, size, 0), turns]() -> Outcome {
      pteron_error* error = nullptr;
      return pteron_chat_rewind(chat->held, turns, &error) == PTERON_OK ? nothing() : failed(error);
    };
    return promised(++last_, std::nullopt, work);
  }

  jsi::Value history(const jsi::Value* given, size_t size) {
    auto work = [chat = chatAt(given, size, 0)]() -> Outcome {
      char* json = nullptr;
      pteron_error* error = nullptr;
      return pteron_chat_history(chat->held, &json, &error) == PTERON_OK ? text(json) : failed(error);
    };
    return promised(++last_, std::nullopt, work);
  }

  jsi::Value cacheState(const jsi::Value* given, size_t size) {
    uint64_t position = 0;
    uint64_t capacity = 0;
    pteron_error* error = nullptr;
    if (pteron_chat_cache_state(chatAt(given, size, 0)->held, &position, &capacity, &error) != PTERON_OK) {
      throw jsi::JSError(runtime_, *failed(error).failed);
    }
    jsi::Object state(runtime_);
    state.setProperty(runtime_, "position", static_cast<double>(position));
    state.setProperty(runtime_, "capacity", static_cast<double>(capacity));
    return state;
  }

  jsi::Value disposeChat(const jsi::Value* given, size_t size) {
    auto found = chats_.extract(handle(given, size, 0));
    auto work = [chat = found.empty() ? nullptr : found.mapped()]() -> Outcome {
      if (chat) pteron_chat_dispose(chat->held);
      return nothing();
    };
    return promised(++last_, std::nullopt, work);
  }

  jsi::Value disposeModel(const jsi::Value* given, size_t size) {
    auto found = models_.extract(handle(given, size, 0));
    auto model = found.empty() ? nullptr : found.mapped();
    std::erase_if(chats_, [&](const auto& chat) { return chat.second->model == model; });
    auto work = [model]() -> Outcome {
      if (model) pteron_model_dispose(model->held);
      return nothing();
    };
    return promised(++last_, std::nullopt, work);
  }
};

/// Lives as long as the runtime: what holds the library for its functions.
struct Holder : jsi::HostObject {
  std::shared_ptr<Library> library;
  explicit Holder(std::shared_ptr<Library> library) : library(std::move(library)) {}
};

} // namespace

void install(jsi::Runtime& runtime, std::shared_ptr<facebook::react::CallInvoker> invoker) {
  auto library = std::make_shared<Library>(runtime, std::move(invoker));
  auto functions = library->functions();
  functions.setProperty(runtime, "holder", jsi::Object::createFromHostObject(runtime, std::make_shared<Holder>(library)));
  runtime.global().setProperty(runtime, "__pteron", functions);
}

} // namespace pteron
