import t from 'tap'
import { callerContext, isSpanId, isTraceId, TraceIds } from '../../../src/base/telemetry/trace-context.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const SPAN = 'b7ad6b7169203331'

t.test('a traceparent of the rules is read', t => {
  t.match(callerContext(`00-${TRACE}-${SPAN}-01`), {
    traceId: TRACE,
    spanId: SPAN,
    isSampled: true,
    header: `00-${TRACE}-${SPAN}-01`,
    state: null,
  })
  t.equal(callerContext(`00-${TRACE}-${SPAN}-00`)?.isSampled, false)
  t.equal(callerContext(`00-${TRACE}-${SPAN}-ff`)?.isSampled, true, 'unknown flags do not matter')
  t.match(
    callerContext(`cc-${TRACE}-${SPAN}-01-what-comes-later`),
    { traceId: TRACE, header: `00-${TRACE}-${SPAN}-01` },
    'of a later version the first four parts count, and ours goes on',
  )
  t.match(callerContext(`cc-${TRACE}-${SPAN}-01`), { traceId: TRACE })
  t.end()
})

const MALFORMED = [
  '',
  'x',
  `00-${TRACE}-${SPAN}`,
  `00-${TRACE}-${SPAN}-01-more`,
  `00-${TRACE}-${SPAN}-01-`,
  `00-${TRACE}-${SPAN}-1`,
  `00-${TRACE}-${SPAN}-0x`,
  `ff-${TRACE}-${SPAN}-01`,
  `0-${TRACE}-${SPAN}-01`,
  `00-${TRACE.toUpperCase()}-${SPAN}-01`,
  `00-${'0'.repeat(32)}-${SPAN}-01`,
  `00-${TRACE}-${'0'.repeat(16)}-01`,
  `00-${TRACE.slice(1)}-${SPAN}-01`,
  `00-${TRACE}-${SPAN}0-01`,
  `00_${TRACE}_${SPAN}_01`,
  `cc-${TRACE}-${SPAN}-01.what`,
  ` 00-${TRACE}-${SPAN}-01`,
  // Two headers, as they are joined.
  `00-${TRACE}-${SPAN}-01, 00-${TRACE}-${SPAN}-01`,
  `cc-${TRACE}-${SPAN}-01-${'x'.repeat(300)}`,
]

t.test('a malformed traceparent is none', t => {
  for (const text of [undefined, ...MALFORMED]) t.equal(callerContext(text), null, text ?? 'absent')
  t.end()
})

t.test('a tracestate goes with it, unless it breaks the rules', t => {
  const stateOf = (state: string) => callerContext(`00-${TRACE}-${SPAN}-01`, state)?.state
  t.equal(stateOf('congo=t61rcWkgMzE,rojo=00f067aa0ba902b7'), 'congo=t61rcWkgMzE,rojo=00f067aa0ba902b7')
  t.equal(stateOf('a=1, \tb=2 ,,'), 'a=1,b=2', 'without spaces and empty members')
  t.equal(stateOf('fw529a3039@dt=FfAAA'), 'fw529a3039@dt=FfAAA')
  for (const bad of ['', 'a', 'a=1,a=2', 'A=1', 'a=1,=2', 'a=b=c', 'a=\x01', `a=${'x'.repeat(257)}`]) {
    t.equal(stateOf(bad), null, bad)
  }
  const many = Array.from({ length: 33 }, (_, at) => `k${at}=1`).join(',')
  t.equal(stateOf(many), null, 'more than 32 members')
  t.end()
})

t.test('ids are hex of their length, and differ', t => {
  const ids = new TraceIds()
  const made = Array.from({ length: 2000 }, () => [ids.traceId(), ids.spanId()] as const)
  t.ok(made.every(([trace, span]) => isTraceId(trace) && isSpanId(span)))
  t.equal(new Set(made.flat()).size, 4000)
  t.notOk(isTraceId('0'.repeat(32)) || isSpanId('0'.repeat(16)) || isTraceId(7) || isSpanId('x'))
  t.end()
})
