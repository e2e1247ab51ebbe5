-- A decoded value, or nil when it has another form than the policy at hand writes.
local function decode(s, ask)
  if s == '' then s = ask.blank end
  if #s < ask.size then return nil end
  local f = { unpack_(ask.format, s) }
  if f[1] ~= ask.header then return nil end
  local lists = ask.lists
  if lists then
    local position = f[ask.slots + 1]
    for i = 1, #lists do
      local L = lists[i]
      local length = f[L.len]
      f[L.s] = sub(s, position, position + length - 1)
      position = position + length
    end
  end
  return f
end

local function encode(f, ask)
  local lists = ask.lists
  if not lists then return pack(ask.format, values(f, 1, ask.slots)) end
  for i = 1, #lists do
    local L = lists[i]
    f[L.len] = #f[L.s]
  end
  local s = pack(ask.format, values(f, 1, ask.slots))
  for i = 1, #lists do s = s .. f[lists[i].s] end
  return s
end

local made = {}
local function parse(s)
  local op, flags, n, slots, cost, header, format, blank, at = unpack_('<BBBBdBc0Bc0Hc0', s)
  local limits, lists, plain = {}, nil, op == 1 and flags < 2
  for i = 1, n do
    local algorithm, o, list, length, N, P, D, X, Y
    algorithm, o, list, length, N, P, D, X, Y, at = unpack_('<BBBBddddd', s, at)
    local kind = algorithm + (D == 1 and 16 or 0) + (Y > 0 and 32 or 0)
    local four = made[kind]
    if not four then
      four = { rules(algorithm, D == 1, Y > 0) }
      made[kind] = four
    end
    local L = { a = algorithm, o = o, s = list, len = length, n = N, p = P, d = D, x = X, y = Y, ask = four[1], add = four[2], four = four }
    limits[i] = L
    if list > 0 then
      lists = lists or {}
      lists[#lists + 1] = L
    end
  end
  local rest
  rest, at = unpack_('<Hc0', s, at)
  return {
    op = op, flags = flags, slots = slots, cost = cost, header = header, format = format, blank = blank,
    size = #blank, rest = rest, meta = at, text = s, limits = limits, lists = lists, plain = plain,
  }
end

keys = { after = {} }
local asks = {}
for i = 1, asked do asks[i] = parse(ARGV[2 + i]) end
