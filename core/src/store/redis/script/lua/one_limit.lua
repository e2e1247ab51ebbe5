-- The most common call: checks of a policy with one limit, whose state is a few numbers. The text of the rule's functions
-- `admits`, `possible` and `charge` stands in for three marks, with the local names below in place of the tables that they
-- change, so that a check makes no table and no closure. The others are for a rule with a list. See inlined_rules.rs.
for i = 1, key_count do
  local key = KEYS[i]
  local s = pcall_('GET', key) or unused
  local tag, field_1, field_2, field_3, field_4, list_text, admitted, possible, ends
  if type(s) == 'string' then
    if #s >= #unused then
      tag, field_1, field_2, field_3, field_4 = unpack_(format, s)
      if #s ~= #unused --<length>
      then tag = nil end
    elseif #s == narrow_size then
      tag, field_1, field_2, field_3 = unpack_(narrow_format, s)
      if tag == narrow_header then tag = header end
    end
  end
  if tag == header then
    --<list>
    --<admits>
    --<possible>
  end
  if not possible then
    unread = unread or {}
    unread[#unread + 1] = i
  else
    if admitted then
      --<charge>
      -- A rule of two fields leaves in the third where they end: a small number.
      if narrows and field_2 <= 255 and field_3 <= 255 then
        s = pack(narrow_format, narrow_header, field_1, field_2, field_3)
      else
        s = pack(format, header, field_1, field_2, field_3, field_4)--<append>
      end
      -- See `ttl` in reply.lua. Few keys of one call have a TTL that differs from the one before.
      local quarters = floor((ends - now) / 250000) + 2
      if quarters ~= ttl_quarters then ttl_quarters, ttl_text = quarters, string.format('%d', quarters * 250) end
      local answer = pcall_('SET', key, s, 'PX', ttl_text)
      if answer.err then s = answer end
    end
    -- One text costs the server less than nested lists, each of which it examines for an error or a status.
    if key_count == 1 and type(s) == 'string' then
      return pack('<dBc0I4', now, admitted and 0 or 1, s, call_number)
    end
    refused, reply = refused or {}, reply or {}
    if not admitted then refused[#refused + 1] = i end
    reply[i] = s
  end
end
