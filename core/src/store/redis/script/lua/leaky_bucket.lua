-- leaky-bucket: a meter of the units in the queue; Rust derives the delay from the value.
if algorithm == LEAKY_BUCKET then return admits, charge, possible, refund, ends end
