// The scenarios of `bindings/scenarios.json` in Kotlin: `SCENARIOS MODELS HOME`; with `LIVES` behind it, what stays of so many models,
// and what a token takes.

package org.pteron.scenarios

import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import org.pteron.*
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import kotlin.concurrent.thread

class Given(private val fields: Map<*, *>, val models: File, val home: File) {
    fun text(name: String) = fields[name] as String
    fun texts(name: String) = (fields[name] as List<*>).map { it as String }
    fun number(name: String) = (fields[name] as Number).toDouble()
    fun numbers(name: String) = (fields[name] as List<*>).map { (it as Number).toLong() }
    fun model(file: String) = File(models, file).path
    fun talking(options: OpenOptions? = null, listener: ProgressListener? = null, cancel: Cancel? = null) =
        Model.open(model("talking.pte"), options, listener, cancel)
    /** A model whose answers last long enough to be interrupted. */
    fun slow() = talking(OpenOptions(backend = text("slow"), context = number("context").toULong()))
    fun answering() =
        GenerateOptions(maxTokens = number("max_tokens").toULong(), temperature = 0.0)
}

/** The kind of error that something gives. */
fun kind(action: () -> Unit): String = try {
    action()
    "none"
} catch (error: PteronException) {
    error::class.simpleName!!
}

fun name(value: Any) = value::class.simpleName!!.lowercase()

fun progress(tell: (Event) -> Boolean) = object : ProgressListener {
    override fun progress(event: Event) = tell(event)
}

fun pieces(hear: (String) -> Boolean) = object : PieceListener {
    override fun piece(text: String) = hear(text)
}

fun sound(hear: (Heard) -> Boolean) = object : SoundListener {
    override fun heard(event: Heard) = hear(event)
}

val endless = ChatOptions(answering = GenerateOptions(ignoreEnd = true))

fun finish(stream: AnswerStream): String {
    while (stream.waitNext() != null) { }
    return stream.answer()!!.finishReason.name.lowercase().replaceFirstChar(Char::uppercase)
}

fun open(given: Given): Map<String, Any?> {
    val needs = requirements(given.model("talking.pte"))
    val events = mutableListOf<String>()
    val converting = mutableListOf<String>()
    given.talking(listener = progress { events += name(it); true }).dispose()
    val cancel = Cancel()
    cancel.cancel()
    val options = OpenOptions(home = given.home.path)
    val embedder = Embedder.open(given.model("embedding"), options, progress { converting += name(it); true })
    val (first, second, third) = embedder.embed(given.texts("texts"))
    return mapOf(
        "needs_more_than_weights" to (needs.total > needs.weights),
        "events" to events,
        "refused" to kind { given.talking(listener = progress { false }) },
        "thrown" to kind { given.talking(listener = progress { error("a mistake of its own") }) },
        "cancelled" to kind { given.talking(cancel = cancel) },
        "converted" to ("converting" in converting),
        "dimensions" to embedder.dimensions(),
        "equal" to (first == second),
        "different" to (first != third),
    ).also { embedder.dispose() }
}

fun rewind(given: Given): Map<String, Any?> {
    val model = given.talking()
    val options = ChatOptions(system = given.text("system"), answering = given.answering())
    val chat = model.chat(options)
    val (first, second) = given.texts("questions").map { chat.send(it) }
    chat.rewind(1u)
    val again = chat.send(given.texts("questions")[1])
    val fork = chat.fork()
    fork.rewind(0u)
    val file = File(given.home, "kotlin.chat").path
    chat.save(file)
    val restored = model.chat()
    restored.restore(file)
    val state = chat.cacheState()
    return mapOf(
        "roles" to chat.history().map { it.role },
        "same_again" to (again.text == second.text),
        "turns" to chat.turns(),
        "fork_turns" to fork.turns(),
        "restored_turns" to restored.turns(),
        "undone" to restored.undo(),
        "position_is_within" to (state.position > 0u && state.position <= state.capacity!!),
        "capacity" to state.capacity,
        "answer" to first.text,
        "tokens" to first.tokens,
    ).also { model.dispose() }
}

fun schema(given: Given): Map<String, Any?> {
    val model = given.talking()
    val chat = model.chat()
    fun ask(schema: String) = chat.send(given.text("question"), GenerateOptions(schema = schema, temperature = 0.0))
    val answer = ask(given.text("schema"))
    val allowed = (Json(given.text("schema")).read() as Map<*, *>)["enum"] as List<*>
    return mapOf(
        "answer" to answer.text,
        "is_allowed" to (Json(answer.text).read() in allowed),
        "finish" to answer.finishReason.name.lowercase().replaceFirstChar(Char::uppercase),
        "unknown" to kind { ask(given.text("unknown")) },
        "broken" to kind { ask(given.text("broken")) },
        "turns" to chat.turns(),
    ).also { model.dispose() }
}

fun tools(given: Given): Map<String, Any?> {
    val model = given.talking()
    val chat = model.chat(ChatOptions(tools = given.text("tools"), answering = given.answering()))
    val options = GenerateOptions(schema = given.text("schema"), temperature = 0.0)
    val call = chat.send(given.text("question"), options).toolCalls.single()
    chat.sendResult(given.text("result"))
    val generation = model.generation(given.answering())
    val generated = generation.generate(listOf(Message("user", given.text("question"))), given.text("tools")).single()
    return mapOf(
        "call" to call.name,
        "city" to (Json(call.arguments).read() as Map<*, *>)["city"],
        "roles" to chat.history().map { it.role },
        "generated" to generated.text,
        "generated_calls" to generated.toolCalls.size,
    ).also { model.dispose() }
}

fun atOnce(given: Given): Map<String, Any?> {
    val model = given.talking()
    fun chat() = model.chat(ChatOptions(answering = given.answering()))
    val together = runBlocking {
        given.texts("questions").map { question -> async { chat().answer(question).toList() } }.awaitAll()
    }
    val alone = given.texts("questions").map { chat().send(it) }
    val slow = given.slow()
    val busy = slow.chat(endless)
    val stream = busy.stream("Hello")
    val second = kind { busy.send("Why?") }
    stream.stop()
    return mapOf(
        "same_as_alone" to (together.map { it.joinToString("") } == alone.map { it.text }),
        "pieces_make_the_answer" to together.all { it.isNotEmpty() },
        "second_call" to second,
        "finish" to finish(stream),
        "usable_after" to (busy.send("Why?", GenerateOptions(maxTokens = 2u)).tokens.size <= 2),
    ).also { model.dispose(); slow.dispose() }
}

fun memory(given: Given): Map<String, Any?> = try {
    given.talking(OpenOptions(memoryLimit = given.number("memory_limit").toULong()))
    mapOf("error" to "none")
} catch (error: PteronException.NotEnoughMemory) {
    mapOf("error" to "NotEnoughMemory", "needed_is_more" to (error.needed > error.limit), "limit" to error.limit)
}

fun badFile(given: Given): Map<String, Any?> {
    fun open(file: String) = Model.open(given.model(file))
    val named = try {
        open("nothing.pte")
        false
    } catch (error: PteronException.NotFound) {
        "nothing.pte" in error.reason
    }
    return mapOf(
        "missing" to kind { open("nothing.pte") },
        "missing_named" to named,
        "text" to kind { open("text.txt") },
        "broken" to kind { open("broken.pte") },
        "silent" to kind { open("silent.pte").chat() },
    )
}

fun dispose(given: Given): Map<String, Any?> {
    val model = given.slow()
    val chat = model.chat(endless)
    val stream = chat.stream(given.text("question"))
    val first = stream.waitNext()
    chat.dispose()
    val after = kind { chat.send("Hello") }
    val ended = finish(stream)
    val other = model.chat(endless)
    val thrown = kind { other.send(given.text("question"), null, pieces { error("a mistake of its own") }) }
    val turns = other.turns()
    model.dispose()
    val ofDisposed = kind { other.send("Hello") }
    val gone = kind { model.chat() }
    model.dispose()
    other.dispose()
    return mapOf(
        "first_piece" to !first.isNullOrEmpty(),
        "after" to after,
        "stream" to ended,
        "thrown" to thrown,
        "turns_after_throw" to turns,
        "chat_of_disposed" to ofDisposed,
        "model" to gone,
        "twice" to true,
    )
}

fun module(given: Given): Map<String, Any?> {
    val module = Module.load(given.model("silent.pte"))
    val numbers = given.numbers("tokens")
    val bytes = ByteBuffer.allocate(8 * numbers.size).order(ByteOrder.nativeOrder())
    numbers.forEach { bytes.putLong(it) }
    val tokens = Value.Tensor(Tensor(DType.I64, listOf(1u, numbers.size.toULong()), bytes.array()))
    val position = Value.Int(given.number("position").toLong())
    fun logits(outputs: List<Value>) = (outputs.single() as Value.Tensor).tensor
    val first = logits(module.execute("forward", listOf(tokens, position)))
    module.reset()
    val again = logits(module.forward(listOf(tokens, position)))
    val about = module.methodMetadata("forward")
    val scores = ByteBuffer.wrap(first.bytes()).order(ByteOrder.nativeOrder()).asFloatBuffer()
    val tooFew = kind { module.forward(listOf(tokens)) }
    val unknown = kind { module.execute("backward", listOf()) }
    module.dispose()
    return mapOf(
        "methods" to module.methodNames(),
        "inputs" to about.inputs.size,
        "first_input" to (about.inputs[0].kind as ArgumentKind.Tensor).dtype.name.lowercase(),
        "shape" to first.shape(),
        "dtype" to first.dtype().name.lowercase(),
        "largest" to (0 until scores.limit()).maxByOrNull { scores[it] },
        "same_again" to first.bytes().contentEquals(again.bytes()),
        "too_few" to tooFew,
        "unknown" to unknown,
        "disposed" to kind { module.forward(listOf(tokens, position)) },
    )
}

fun transcription(given: Given): Map<String, Any?> {
    val rate = given.number("rate").toInt()
    val samples = List(given.number("seconds").toInt() * rate) { given.number("sample").toFloat() }
    val audio = Audio.Samples(samples, rate.toUInt())
    val heard = mutableListOf<String>()
    val transcriber = Transcriber.open(given.model("hearing"), OpenOptions(home = given.home.path))
    val found = transcriber.transcribe(audio, null, sound { heard += name(it); true })
    return mapOf(
        "text" to found.text,
        "duration" to found.duration,
        "heard" to heard.filter { it == "begins" || it == "said" },
        "refused" to kind { transcriber.transcribe(audio, null, sound { false }) },
        "words" to kind { transcriber.transcribe(audio, TranscribeOptions(words = true)) },
    ) + live(transcriber, samples, rate.toUInt()).also { transcriber.dispose() }
}

fun live(transcriber: Transcriber, samples: List<Float>, rate: UInt): Map<String, Any?> {
    val said = LiveSound(rate)
    val microphone = thread {
        for (piece in samples.chunked(samples.size / 4)) {
            said.push(piece)
            Thread.sleep(5)
        }
        said.finish()
    }
    val found = transcriber.transcribe(Audio.Live(said))
    microphone.join()
    val stopper = thread {
        try {
            while (true) {
                Thread.sleep(20)
                transcriber.stop()
            }
        } catch (_: InterruptedException) {
        }
    }
    val unwanted = kind { transcriber.transcribe(Audio.Live(LiveSound(rate))) }
    stopper.interrupt()
    stopper.join()
    val late = kind { said.push(samples) }
    return mapOf("live" to "${found.text} of ${found.duration.toInt()} s", "unwanted" to unwanted, "late" to late)
}

val scenarios = mapOf(
    "open" to ::open, "rewind" to ::rewind, "schema" to ::schema, "tools" to ::tools, "at once" to ::atOnce,
    "memory" to ::memory, "bad file" to ::badFile, "dispose" to ::dispose, "module" to ::module,
    "transcription" to ::transcription,
)

/** KiB of the process in memory. */
fun resident(): Long {
    System.gc()
    return File("/proc/self/statm").readText().split(" ")[1].toLong() * 4
}

fun endure(talking: String, lives: Int): Map<String, Any?> {
    var early = 0L
    for (life in 1..lives) {
        val model = Model.open(talking, null, null, null)
        val chat = model.chat(ChatOptions(answering = GenerateOptions(maxTokens = 8u, temperature = 0.0)))
        chat.send("Hello", null, pieces { true })
        // Objects are the collector's own; what they hold goes with `dispose`.
        chat.dispose()
        model.dispose()
        if (life == lives / 2) early = resident()
    }
    val late = resident()
    val model = Model.open(talking, null, null, null)
    val long = ChatOptions(answering = GenerateOptions(maxTokens = 200u, temperature = 0.0, ignoreEnd = true))
    val least = (1..40).minOf {
        val chat = model.chat(long)
        val begin = System.nanoTime()
        val answer = chat.send("Hello", null, pieces { true })
        val taken = (System.nanoTime() - begin) / 1e3 / answer.tokens.size
        chat.dispose()
        taken
    }
    model.dispose()
    return mapOf("lives" to lives, "early_kib" to early, "late_kib" to late, "token_microseconds" to least)
}

fun main(arguments: Array<String>) {
    val (file, models, home) = arguments
    arguments.getOrNull(3)?.let { lives ->
        println(json(mapOf("name" to "endure", "facts" to endure(File(models, "talking.pte").path, lives.toInt()))))
        return
    }
    val described = (Json(File(file).readText()).read() as Map<*, *>)["scenarios"] as List<*>
    for (scenario in described.map { it as Map<*, *> }) {
        val given = Given(scenario["given"] as Map<*, *>, File(models), File(home))
        val facts = scenarios.getValue(scenario["name"] as String)(given)
        println(json(mapOf("name" to scenario["name"], "facts" to facts)))
    }
}
