//! What is wrong with an argument.

/// Why a question to the model has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A number lies outside of what its argument takes.
    #[error("{argument} = {value} {unit}: must be {wants}")]
    Argument {
        /// The argument's name.
        argument: &'static str,
        /// Its unit; for plain numbers, what they count.
        unit: &'static str,
        /// What was given.
        value: f64,
        /// What would do.
        wants: &'static str,
    },
    /// A word is none of those that its argument takes.
    #[error("{argument} = {value:?}: must be {wants}")]
    Word {
        /// The argument's name.
        argument: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        wants: &'static str,
    },
    /// The combination is outside of what can be evaluated.
    #[error("{what} = {value}: {advice}")]
    Unsupported {
        /// What is too much.
        what: &'static str,
        /// How much it is.
        value: f64,
        /// What would do.
        advice: &'static str,
    },
}

/// `value` if it is within `[low, high]`, which a NaN is not.
pub(crate) fn within(
    argument: &'static str,
    unit: &'static str,
    value: f64,
    low: f64,
    high: f64,
    wants: &'static str,
) -> Result<f64, ModelError> {
    if value >= low && value <= high {
        Ok(value)
    } else {
        Err(ModelError::Argument {
            argument,
            unit,
            value,
            wants,
        })
    }
}

/// `value` if it is finite and above zero.
pub(crate) fn positive(
    argument: &'static str,
    unit: &'static str,
    value: f64,
) -> Result<f64, ModelError> {
    within(
        argument,
        unit,
        value,
        f64::MIN_POSITIVE,
        f64::MAX,
        "finite and above zero",
    )
}
