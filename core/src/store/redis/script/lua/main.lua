-- The loop over the keys, or over those that a fast path left.
if unread then
  for i = 1, #unread do serve_key(unread[i], unread[i] - 1, 1, nil, 0) end
  return sealed()
end

local program = ARGV[2] and { unpack_('<' .. string.rep('H', #ARGV[2] / 2), ARGV[2]) } or nil
if grouping > 0 then return serve_together(program) or sealed() end

local entry, at = 0, 0
for index = 1, key_count do
  local n = program and program[at + 1] or 1
  if stride == 1 then
    serve_key(index, entry, n, program, at + 1)
  else
    -- Commands on the companions raise errors: each key fails alone.
    companions.deferred = {}
    local fine, why = pcall(serve_key, index, entry, n, program, at + 1)
    if not fine then
      for i = 1, n do reply[entry + i] = { err = type(why) == 'table' and why.err or tostring(why) } end
    end
  end
  entry, at = entry + n, at + n + 1
end
return sealed()
