/** Cache marks of the caller in the form of each provider: the last four, and no shorter time before a longer one. */
import t from 'tap'
import { BREAKPOINT, CACHE_POINT, lastMarks, withLastMarks } from '../../../src/formats/marks/cache-marks.ts'

const block = (text: string, ttl?: '5m' | '1h') => ({
  text,
  cache_control: ttl === undefined ? { type: 'ephemeral' } : { type: 'ephemeral', ttl },
})

t.test('four marks for the same time go out as they are', async t => {
  const body = { system: [block('a'), block('b')], messages: [{ content: [block('c'), block('d')] }] }
  t.equal(withLastMarks(body), body)
  const falling = { system: [block('a', '1h')], messages: [{ content: [block('b', '5m')] }] }
  t.equal(withLastMarks(falling), falling)
})

t.test('of more marks the last four go out, that of the whole request included', async t => {
  const body = {
    tools: [block('t')],
    system: [block('a'), { text: 'plain' }],
    messages: [{ content: [{ content: [block('b')] }, block('c')] }],
    cache_control: { type: 'ephemeral' },
  }
  t.same(withLastMarks(body), { ...body, tools: [{ text: 't' }] })
  const five = { ...body, messages: [{ content: [{ content: [block('b')] }, block('c'), block('d')] }] }
  t.same(withLastMarks(five), {
    ...five,
    tools: [{ text: 't' }],
    system: [{ text: 'a' }, { text: 'plain' }],
  })
})

t.test('a mark before one for an hour is for an hour too', async t => {
  const body = {
    system: [block('a'), block('b', '5m')],
    messages: [{ content: [block('c', '1h'), block('d', '5m')] }],
  }
  t.same(withLastMarks(body), {
    system: [block('a', '1h'), block('b', '1h')],
    messages: [{ content: [block('c', '1h'), block('d', '5m')] }],
  })
  const whole = { messages: [{ content: [block('a')] }], cache_control: { type: 'ephemeral', ttl: '1h' } }
  t.same(withLastMarks(whole), { ...whole, messages: [{ content: [block('a', '1h')] }] })
})

t.test('marks that are blocks of their own, and those without a time', async t => {
  const point = (ttl?: '1h') => ({
    cachePoint: { type: 'default', ...(ttl === undefined ? {} : { ttl }) },
  })
  const text = { text: 'x' }
  const lists = [
    undefined,
    [text, point(), text, point()],
    [{ content: [text, point(), point(), point('1h')] }],
  ]
  t.same(lastMarks(lists, CACHE_POINT), [
    undefined,
    [text, text, point('1h')],
    [{ content: [text, point('1h'), point('1h'), point('1h')] }],
  ])
  const breakpoint = { ...text, prompt_cache_breakpoint: { mode: 'explicit' } }
  const items = [{ content: [breakpoint, breakpoint] }, { content: [breakpoint, breakpoint, breakpoint] }]
  t.same(lastMarks([items], BREAKPOINT), [[{ content: [text, breakpoint] }, items[1]]])
  t.equal(lastMarks([items.slice(1)], BREAKPOINT), null)
})
