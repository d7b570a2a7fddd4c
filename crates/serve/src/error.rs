//! What a client is told when a request cannot be answered: a status, and JSON with a message, a type, the parameter and
//! a code.

use hyper::StatusCode;
use pteron_llm::{LlmError, Refused, SeeError};
use serde_json::{Value, json};

const TOO_LONG: &str = "context_length_exceeded";
const UNSEEN: &str = "invalid_image";

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None }
    }

    /// The request is wrong.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// A parameter is wrong.
    pub(crate) fn parameter(name: &str, message: impl Into<String>) -> ApiError {
        ApiError::invalid(message).at(name).code("invalid_value")
    }

    /// A parameter is not honoured, and is therefore not taken.
    pub(crate) fn unsupported(name: &str, message: impl Into<String>) -> ApiError {
        ApiError::invalid(message).at(name).code("unsupported_parameter")
    }

    pub(crate) fn at(self, name: &str) -> ApiError {
        // Names of parameters are a stranger's words too.
        ApiError { param: Some(name.chars().take(64).collect()), ..self }
    }

    /// The same, where what one interface calls `from` is called `to` in another.
    pub(crate) fn renamed(self, from: &str, to: &str) -> ApiError {
        if self.param.as_deref() == Some(from) { self.at(to) } else { self }
    }

    pub(crate) fn code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    pub(crate) fn unknown_model(name: &str) -> ApiError {
        let shown: String = name.chars().take(100).collect();
        let message = format!("there is no model {shown:?}; GET /v1/models lists those that there are");
        ApiError::new(StatusCode::NOT_FOUND, message).at("model").code("model_not_found")
    }

    /// The same, where what is wrong is in the prompt of that name.
    pub(crate) fn of_prompt(self, name: &str) -> ApiError {
        let is_in_prompt = self.code.is_some_and(|code| [TOO_LONG, UNSEEN].contains(&code));
        if is_in_prompt { self.at(name) } else { self }
    }

    /// Something of ours went wrong.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    pub(crate) fn json(&self) -> Value {
        let ApiError { message, param, code, .. } = self;
        json!({"error": {"message": message, "type": self.kind(), "param": param, "code": code}})
    }

    /// Whether it is worth trying again a little later.
    pub(crate) fn passes(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }
}

impl From<LlmError> for ApiError {
    fn from(error: LlmError) -> ApiError {
        let message = error.to_string();
        match error {
            LlmError::PromptTooLong { .. }
            | LlmError::PromptFarTooLong { .. }
            | LlmError::ContextFull { .. }
            | LlmError::TooLarge { .. } => ApiError::invalid(message).code(TOO_LONG),
            LlmError::Answers { .. } => ApiError::parameter("n", message),
            LlmError::See(SeeError::Rows { .. } | SeeError::Torn { .. }) => ApiError::internal(message),
            LlmError::See(_) => ApiError::invalid(message).code(UNSEEN),
            LlmError::DrawsItself { .. } => ApiError::invalid(message).code("unsupported_parameter"),
            LlmError::EmptyPrompt
            | LlmError::UnknownToken { .. }
            | LlmError::Template(_)
            | LlmError::Tokenizer(_)
            | LlmError::Constraint(_)
            | LlmError::Sampler(_) => ApiError::invalid(message),
            _ => ApiError::internal(message),
        }
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> ApiError {
        let message = refused.to_string();
        match refused {
            Refused::Full { .. } => ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full"),
            Refused::Closed => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("shutting_down"),
            Refused::Request(error) => error.into(),
        }
    }
}
