-- The common calls: checks of one policy, one for each key, which write nothing when they are refused. compiler.rs makes of this
-- text a loop for each rule that a policy has alone, one for policies of several limits, and some for two or three limits of one
-- rule. The rules' own text stands in it, so that a check makes no closure, and a table only where a policy has limits of several
-- rules. A value that it cannot read is left to the slow path, in `unread`. An error of the server is a table, whose length is 0.
--[[ loop ]]
for i = 1, key_count do
  local key = KEYS[PLACE]
  local s = pcall_('GET', key) or unused
  local admitted, possible, ends = true, false, nil
  --<ask>
  if not possible then
    unread = unread or {}
    unread[#unread + 1] = i
  else
    if admitted then
      --<apply>
      -- See `ttl` in reply.lua. Few keys of one call have a TTL that differs from the one before.
      local quarters = floor((ends - now) / 250000) + 2
      if quarters ~= ttl_quarters then ttl_quarters, ttl_text = quarters, string.format('%d', quarters * 250) end
      local answer = pcall_('SET', key, s, 'PX', ttl_text)
      if answer.err then s = answer end
      --<answer>
    end
    -- One text costs the server less than nested lists, each of which it examines for an error or a status.
    if key_count == 1 and #s > 0 then
      return pack('<dBc0I4', now, admitted and 0 or 1, s, call_number)
    end
    refused, reply = refused or {}, reply or {}
    if not admitted then refused[#refused + 1] = i end
    reply[i] = s
  end
end
--[[ ask one limit ]]
local tag, FIELDS
if #s == #unused then
  tag, FIELDS = unpack_(format, s)
elseif #s == narrow_size then
  tag, FIELDS = unpack_(narrow_format, s)
  if tag == narrow_header then tag = header end
end
if tag == header then
  --<advance>
  admitted = USED + cost <= count
  possible = POSSIBLE
end
--[[ apply one limit ]]
--<charge>
if narrows and SMALL then
  s = pack(narrow_format, narrow_header, FIELDS)
else
  s = pack(format, header, FIELDS)
end
--[[ ask one limit with a list ]]
local tag, FIELDS
if #s >= #unused then
  tag, FIELDS = unpack_(format, s)
  if tag == header and #s == #unused + list and list % ITEM == 0 then
    list = sub(s, #unused + 1)
    --<advance>
    admitted = USED + cost <= count
    possible = POSSIBLE
  end
end
--[[ apply one limit with a list ]]
--<charge>
s = pack(format, header, NUMBERS, #list) .. list
--[[ ask one limit with a log ]]
local tag, FIELDS, total, used, oldest
if #s >= #unused then
  tag, FIELDS = unpack_(format, s)
  if tag == header and #s == #unused + list and list % ITEM == 0 then
    list = sub(s, #unused + 1)
    --<alone>
  end
end
--[[ apply one limit with a log ]]
--<charge alone>
s = pack(format, header, NUMBERS, #list) .. list
--[[ answer one limit with a log ]]
if s ~= answer then s = s .. pack('<dddd', used + cost, 0, ends, oldest + period) end
--[[ several limits ]]
local numbers = { unpack_('<' .. string.rep('BBBBddddd', limit_count), ARGV[1], after - 36) }
local last_limit = #numbers - 1
local HELPERS
--<loop>
--[[ ask several limits ]]
local value = #s >= #unused and { unpack_(format, s) }
if value and value[1] == header then
  local position = #unused + 1
  for place = 1, last_limit, 9 do
    local algorithm, first = numbers[place], numbers[place + 1]
    --<each limit>
    if not (possible and admitted) then break end
  end
  if admitted and position ~= #s + 1 then possible = false end
end
--[[ ask one of several ]]
--<advance>
admitted = USED + cost <= count
possible = POSSIBLE
--[[ ask one of several with a list ]]
local LENGTH
list = length > 0 and sub(s, position, position + length - 1) or ''
position, possible = position + length, false
if #list == length and length % ITEM == 0 then
  --<advance>
  admitted = USED + cost <= count
  possible = POSSIBLE
end
--[[ limits of a rule ]]
local NUMBERS = unpack_('FORMAT', ARGV[1], after - 36)
--<loop>
--[[ ask limits of a rule ]]
local tag, FIELDS
if #s >= #unused then
  tag, FIELDS = unpack_(format, s)
  if tag == header then
    local position = #unused + 1
    --<each limit>
    if admitted and position ~= #s + 1 then possible = false end
  end
end
--[[ apply limits of a rule ]]
local latest = 0
--<each limit>
s, ends = pack(format, header, STORED) .. LISTS, latest
--[[ apply one of a rule with a list ]]
--<charge>
if ends > latest then latest = ends end
--[[ apply several limits ]]
local latest, lists = 0, ''
for place = 1, last_limit, 9 do
  local algorithm, first = numbers[place], numbers[place + 1]
  --<each limit>
  if ends > latest then latest = ends end
end
s, ends = pack(format, values(value, 1, slots)) .. lists, latest
--[[ apply one of several ]]
--<charge>
--[[ apply one of several with a list ]]
local list_slot = numbers[place + 2]
--<charge>
value[numbers[place + 3]], lists = #list, lists .. list
