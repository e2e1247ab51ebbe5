#!lua flags=allow-cross-slot-keys
-- A call over several slots of a cluster. A command declares keys of one slot only, so this one declares its first key. The
-- number of the keys and all keys but the first stand before the arguments that head.lua describes. A key that this node does
-- not have fails alone, with the error that `pcall` returns, before anything was done about it.
local name_count = tonumber(ARGV[1])
local KEYS, ARGV = { KEYS[1], unpack(ARGV, 2, name_count) }, { unpack(ARGV, name_count + 1) }
