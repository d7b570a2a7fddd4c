// As much of JSON as the scenarios need: Kotlin brings none.

package org.pteron.scenarios

/** Reads one value: maps, lists, texts, numbers, truth values. */
class Json(private val text: String) {
    private var at = 0

    fun read(): Any? {
        skip()
        return when (val first = text[at]) {
            '{' -> entries('}') { val key = read() as String; expect(':'); key to read() }.toMap()
            '[' -> entries(']') { read() }
            '"' -> string()
            't' -> word("true", true)
            'f' -> word("false", false)
            'n' -> word("null", null)
            else -> number(first)
        }
    }

    private fun <T> entries(end: Char, entry: () -> T): List<T> {
        at++
        val all = mutableListOf<T>()
        skip()
        while (text[at] != end) {
            all += entry()
            skip()
            if (text[at] == ',') at++
            skip()
        }
        at++
        return all
    }

    private fun string(): String {
        val out = StringBuilder()
        at++
        while (text[at] != '"') {
            if (text[at] != '\\') {
                out.append(text[at++])
                continue
            }
            when (val escaped = text[at + 1]) {
                'n' -> out.append('\n')
                't' -> out.append('\t')
                'u' -> { out.append(text.substring(at + 2, at + 6).toInt(16).toChar()); at += 4 }
                else -> out.append(escaped)
            }
            at += 2
        }
        at++
        return out.toString()
    }

    private fun word(word: String, value: Any?): Any? {
        check(text.startsWith(word, at)) { "no JSON at $at" }
        at += word.length
        return value
    }

    private fun number(first: Char): Any {
        check(first == '-' || first.isDigit()) { "no JSON at $at" }
        val start = at
        while (at < text.length && text[at] in "+-.eE0123456789") at++
        val digits = text.substring(start, at)
        return digits.toLongOrNull() ?: digits.toDouble()
    }

    private fun expect(mark: Char) {
        skip()
        check(text[at] == mark) { "no JSON at $at" }
        at++
    }

    private fun skip() {
        while (at < text.length && text[at].isWhitespace()) at++
    }
}

/** A value as JSON, all but ASCII escaped. */
fun json(value: Any?): String = when (value) {
    is Map<*, *> -> value.entries.joinToString(",", "{", "}") { "${json(it.key)}:${json(it.value)}" }
    is Iterable<*> -> value.joinToString(",", "[", "]") { json(it) }
    is String -> value.map { if (it in ' '..'~' && it != '"' && it != '\\') "$it" else "\\u%04x".format(it.code) }
        .joinToString("", "\"", "\"")
    else -> value.toString()
}
