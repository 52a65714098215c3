//! The primitive types of Kafka's protocol: fixed-width integers, varints, strings, arrays, tagged fields.
