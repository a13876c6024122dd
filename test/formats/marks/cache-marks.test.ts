/** Cache marks of the caller in the form of each provider: the last four, and no shorter time before a longer one. */
import t from 'tap'
import {
  BREAKPOINT,
  CACHE_POINT,
  lastMarks,
  lostMarks,
  withLastMarks,
} from '../../../src/formats/marks/cache-marks.ts'

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

t.test('a mark for an hour after one for five minutes is for five minutes too', async t => {
  const body = {
    system: [block('a'), block('b', '5m')],
    messages: [{ content: [block('c', '1h'), block('d', '5m')] }],
  }
  t.same(withLastMarks(body), {
    system: [block('a'), block('b', '5m')],
    messages: [{ content: [block('c'), block('d', '5m')] }],
  })
  const whole = { messages: [{ content: [block('a')] }], cache_control: { type: 'ephemeral', ttl: '1h' } }
  t.same(withLastMarks(whole), { ...whole, cache_control: { type: 'ephemeral' } })
})

t.test('a mark that does not go out has no effect on later ones', async t => {
  const hours = (marks: string) => [...marks].map(text => block(text, '1h'))
  const five = { messages: [{ content: [block('a'), ...hours('bcde')] }] }
  t.same(withLastMarks(five), { messages: [{ content: [{ text: 'a' }, ...hours('bcde')] }] })
  const six = {
    system: [block('a'), block('b', '5m')],
    messages: [{ content: [block('c', '1h'), block('d')] }],
  }
  t.same(withLastMarks({ ...six, tools: [block('t')], cache_control: { type: 'ephemeral', ttl: '1h' } }), {
    tools: [{ text: 't' }],
    system: [{ text: 'a' }, block('b', '5m')],
    messages: [{ content: [block('c'), block('d')] }],
    cache_control: { type: 'ephemeral' },
  })
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
    [text, text, point()],
    [{ content: [text, point(), point(), point()] }],
  ])
  const breakpoint = { ...text, prompt_cache_breakpoint: { mode: 'explicit' } }
  const items = [{ content: [breakpoint, breakpoint] }, { content: [breakpoint, breakpoint, breakpoint] }]
  t.same(lastMarks([items], BREAKPOINT), [[{ content: [text, breakpoint] }, items[1]]])
  t.equal(lastMarks([items.slice(1)], BREAKPOINT), null)
})

t.test('marks that did not go out are named', async t => {
  const mark = { type: 'ephemeral' }
  const hour = { type: 'ephemeral', ttl: '1h' }
  const part = (cache_control?: object) => ({
    type: 'input_text',
    text: 'x',
    ...(cache_control && { cache_control }),
  })
  const request = (...parts: object[]) => ({ input: [{ role: 'user', content: parts }] })
  const body = (...content: object[]) => ({ messages: [{ role: 'user', content }] })
  t.same(lostMarks(request(part()), body(part())), [], 'there was none')
  t.same(lostMarks(request(part(mark)), body(part(mark))), [])
  t.same(lostMarks(request(part(mark)), body(part())), ['cache_control'])
  t.same(lostMarks({ input: 'x', cache_control: mark }, body(part())), ['cache_control'])
  t.same(lostMarks({ input: 'x', cache_control: mark }, body(part(mark))), [], 'in another place')
  t.same(lostMarks({ input: 'x', tools: [{ name: 'f', cache_control: mark }] }, body(part())), [
    'cache_control',
  ])
  t.same(lostMarks(request(part(mark), part(hour)), body(part(mark), part(mark))), ['cache_control.ttl'])
  t.same(lostMarks(request(part(hour)), body({ cachePoint: { type: 'default', ttl: '1h' } })), [])
  const breakpoint = { type: 'input_text', text: 'x', prompt_cache_breakpoint: { mode: 'explicit' } }
  t.same(lostMarks(request(breakpoint), body(part())), ['prompt_cache_breakpoint'])
})
