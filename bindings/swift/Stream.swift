// Answers as asynchronous sequences, over the generated module. A task that is cancelled ends its answer.

extension Chat {
    /// Asks something; the pieces of the answer as they come. What was said until an interruption stays.
    public func answer(_ text: String, options: GenerateOptions? = nil) -> AsyncThrowingStream<String, Error> {
        pieces { try self.stream(text: text, options: options) }
    }

    /// Gives the model what a tool has found that it called in its last answer.
    public func answer(result found: String) -> AsyncThrowingStream<String, Error> {
        pieces { try self.streamResult(found: found) }
    }
}

/// The pieces of a stream that is begun when somebody asks for them.
private func pieces(_ begin: @escaping @Sendable () throws -> AnswerStream) -> AsyncThrowingStream<String, Error> {
    AsyncThrowingStream { continuation in
        let reading = Task {
            do {
                let stream = try begin()
                try await withTaskCancellationHandler {
                    while let piece = try await stream.next() {
                        continuation.yield(piece)
                    }
                } onCancel: {
                    stream.stop()
                }
                continuation.finish()
            } catch {
                continuation.finish(throwing: error)
            }
        }
        continuation.onTermination = { _ in reading.cancel() }
    }
}
