-- The loop over the keys, or over those that a loop for checks left.
if unread then
  for i = 1, #unread do try_key(unread[i], unread[i] - 1, 1, nil, 0) end
  return sealed()
end

local program = ARGV[2] and { unpack_('<' .. string.rep('H', #ARGV[2] / 2), ARGV[2]) } or nil
if grouping ~= INDEPENDENT then
  local fine, failure = pcall(serve_together, program)
  if not fine then return failure_of(failure) end
  return failure or sealed()
end

local entry, at = 0, 0
for index = 1, key_count do
  local n = program and program[at + 1] or 1
  try_key(index, entry, n, program, at + 1)
  entry, at = entry + n, at + n + 1
end
return sealed()
