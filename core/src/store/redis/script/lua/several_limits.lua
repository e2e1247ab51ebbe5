-- A lone check of a policy of several such limits: as in one_limit.lua the text of the rules stands in for three marks, here in
-- a branch for each algorithm. A limit's fields are taken out of the value and put back. Where a call has many keys that
-- costs more than functions do: see fast_path.lua.
local numbers = { unpack_('<' .. string.rep('BBBBddddd', limit_count), ARGV[1], after - 36) }
local s = pcall_('GET', KEYS[1]) or unused
local value = type(s) == 'string' and #s >= #unused and { unpack_(format, s) }
local admitted, possible, position = true, value and value[1] == header, #unused + 1
if possible then
  for at = 0, 9 * limit_count - 1, 9 do
    local algorithm, first, list = numbers[at + 1], numbers[at + 2], numbers[at + 3]
    local count, period, x, y = numbers[at + 5], numbers[at + 6], numbers[at + 7], numbers[at + 8]
    local field_1, field_2, field_3 = value[first], value[first + 1], value[first + 2]
    local list_text
    if list > 0 then
      local length = value[first + 3]
      list_text = length > 0 and sub(s, position, position + length - 1) or ''
      position = position + length
      possible = #list_text == length and length % 14 == 0
      if not possible then break end
    end
    --<admits>
    --<possible>
    if not (possible and admitted) then break end
    -- A third field that the limit does not have belongs to the next one, and is as it was.
    value[first], value[first + 1], value[first + 2] = field_1, field_2, field_3
    if list > 0 then value[list] = list_text end
  end
  if admitted and position ~= #s + 1 then possible = false end
end
if not possible then
  unread = { 1 }
else
  if admitted then
    local latest, lists = 0, ''
    for at = 0, 9 * limit_count - 1, 9 do
      local algorithm, first, list = numbers[at + 1], numbers[at + 2], numbers[at + 3]
      local period, x, y = numbers[at + 6], numbers[at + 7], numbers[at + 8]
      local field_1, field_2, field_3, list_text = value[first], value[first + 1], value[first + 2], value[list]
      local ends
      --<charge>
      value[first], value[first + 1], value[first + 2] = field_1, field_2, field_3
      if list > 0 then value[first + 3], lists = #list_text, lists .. list_text end
      if ends > latest then latest = ends end
    end
    s = pack(format, values(value, 1, slots)) .. lists
    local ttl = string.format('%d', (floor((latest - now) / 250000) + 2) * 250)
    local answer = pcall_('SET', KEYS[1], s, 'PX', ttl)
    if answer.err then s = answer end
  end
  if type(s) == 'string' then return pack('<dBc0I4', now, admitted and 0 or 1, s, call_number) end
  reply = { s }
end
