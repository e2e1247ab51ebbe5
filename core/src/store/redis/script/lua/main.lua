-- What is left: plain checks by limits with lists take the short way, everything else the long one.
local serve, serve_together

local plan = ARGV[2] ~= '' and { unpack_('<' .. string.rep('H', #ARGV[2] / 2), ARGV[2]) } or nil
if odd then
  serve = others()
  for i = 1, #odd do serve(odd[i], odd[i] - 1, 1, nil, 0) end
  return out
end
if together > 0 then
  serve, serve_together = others()
  local failure = serve_together(plan)
  if failure then return failure end
  return out
end

if not plan and stride == 1 and asks[1].plain then
  local ask = asks[1]
  local limits, cost, blank = ask.limits, ask.cost, ask.blank
  local n, none = #limits, 0
  for run = 1, runs do
    local key = KEYS[run]
    local s = pcall_('GET', key) or blank
    local f = type(s) == 'string' and decode(s, ask)
    if not f then
      -- Another form, or an error.
      serve = serve or others()
      serve(run, run - 1, 1, nil, 0)
    else
      local admitted = true
      for i = 1, n do
        local L = limits[i]
        if not L.ask(f, L.o, now, cost, L) then
          admitted = false
          break
        end
      end
      if admitted then
        local ends = 0
        for i = 1, n do
          local L = limits[i]
          local limit_ends = L.add(f, L.o, now, cost, L, none)
          if limit_ends > ends then ends = limit_ends end
        end
        s = encode(f, ask)
        out[run + 2] = s
        local reply = pcall_('SET', key, s, 'PX', life(ends))
        if reply.err then out[run + 2] = reply end
      else
        refused[#refused + 1] = run
        out[run + 2] = s
      end
    end
  end
  return out
end

serve = others()
local entry, at = 0, 0
for run = 1, runs do
  local n = plan and plan[at + 1] or 1
  if stride == 1 then
    serve(run, entry, n, plan, at + 1)
  else
    keys.after = {}
    local fine, why = pcall(serve, run, entry, n, plan, at + 1)
    if not fine then
      for i = 1, n do out[entry + i + 2] = { err = type(why) == 'table' and why.err or tostring(why) } end
    end
  end
  entry, at = entry + n, at + n + 1
end
return out
