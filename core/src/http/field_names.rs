//! The names of the fields that announce limits, and of the parameters of the IETF fields, for outgoing and incoming
//! responses. If a revision of the draft has other names, only this file changes.

pub(super) const POLICY: &str = "RateLimit-Policy";
pub(super) const LIMIT: &str = "RateLimit";
pub(super) const OLD_LIMIT: &str = "X-RateLimit-Limit";
pub(super) const OLD_REMAINING: &str = "X-RateLimit-Remaining";
pub(super) const OLD_RESET: &str = "X-RateLimit-Reset";
pub(super) const RETRY_AFTER: &str = "Retry-After";
// Parameters, with the characters around them.
pub(super) const QUOTA: &str = ";q=";
pub(super) const UNIT: &str = ";qu=\"";
pub(super) const UNIT_OF_HOLDS: &str = "concurrent-requests";
pub(super) const WINDOW: &str = ";w=";
pub(super) const LEFT: &str = ";r=";
pub(super) const MORE_AFTER: &str = ";t=";
