//! Errors of the model's arguments.

/// Why the model cannot evaluate its arguments.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A number is out of the range of its argument.
    #[error("{argument} = {value} {unit}: must be {wants}")]
    Argument {
        /// The argument's name.
        argument: &'static str,
        /// Its unit. For a plain number, what it counts.
        unit: &'static str,
        /// The given value.
        value: f64,
        /// The valid values.
        wants: &'static str,
    },
    /// A word is not one of the argument's values.
    #[error("{argument} = {value:?}: must be {wants}")]
    Word {
        /// The argument's name.
        argument: &'static str,
        /// The given value.
        value: String,
        /// The valid values.
        wants: &'static str,
    },
    /// The combination of arguments cannot be evaluated.
    #[error("{what} = {value}: {advice}")]
    Unsupported {
        /// The quantity that is too large.
        what: &'static str,
        /// Its value.
        value: f64,
        /// What to do instead.
        advice: &'static str,
    },
}

/// Returns `value` if it is within `[low, high]`. NaN is not.
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

/// Returns `value` if it is finite and above zero.
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
