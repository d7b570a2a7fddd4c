// Answers as flows: what coroutines collect. Cancelling the collector stops the answer.

package org.pteron

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow

/** The pieces of an answer, as they come. */
fun AnswerStream.pieces(): Flow<String> = flow {
    try {
        while (true) emit(next() ?: break)
    } finally {
        stop()
    }
}

/** Asks something; the pieces of the answer, as they come. Nothing is asked until somebody collects. */
fun Chat.answer(text: String, options: GenerateOptions? = null): Flow<String> = flow {
    stream(text, options).use { stream -> stream.pieces().collect { emit(it) } }
}

/** Answers a conversation; the pieces of the answer, as they come. */
fun Generation.answer(messages: List<Message>, tools: String? = null): Flow<String> = flow {
    stream(messages, tools).use { stream -> stream.pieces().collect { emit(it) } }
}
