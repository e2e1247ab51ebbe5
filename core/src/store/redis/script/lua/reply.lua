refused, reply = refused or {}, reply or {}

-- The reply, once it has the item of each entry.
local function sealed()
  local n = #refused
  local numbers = n > 0 and pack('<' .. string.rep('I4', n), values(refused, 1, n)) or ''
  reply[#reply + 1] = pack('<d', now) .. numbers .. pack('<I4', call_number)
  return reply
end
if grouping == CHECKS and not unread and key_at > #KEYS then return sealed() end

-- The TTL of a value, in ms, as text. It ends within half a second after the value does. The keys of one call have few
-- different ones, so texts are kept.
local ttl_texts = {}
local function ttl(ends)
  local quarters = floor((ends - now) / 250000) + 2
  local text = ttl_texts[quarters]
  if not text then
    text = string.format('%d', quarters * 250)
    ttl_texts[quarters] = text
  end
  return text
end

