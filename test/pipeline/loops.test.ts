import fc from 'fast-check'
import t from 'tap'
import { findLoop } from '../../src/pipeline/loops.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { search } from '../support/property.ts'

const POLICY = { action: 'stop', repeats: 5, cycles: 4, usd: null } as const

interface Call {
  readonly name: string
  readonly args: string
  readonly result: string | null
}

const call = (name: string, args = '{"at":1}', result: string | null = 'same'): Call => ({
  name,
  args,
  result,
})

function requestOf(calls: readonly (Call | string)[]): ResponsesRequest {
  const input = calls.flatMap((each, at): object[] => {
    if (typeof each === 'string') return [{ role: 'user', content: each }]
    const id = `call_${at}`
    const asked = { type: 'function_call', call_id: id, name: each.name, arguments: each.args }
    return each.result === null
      ? [asked]
      : [asked, { type: 'function_call_output', call_id: id, output: each.result }]
  })
  return { model: 'm', input } as ResponsesRequest
}

const found = (calls: readonly (Call | string)[]) => findLoop(requestOf(calls), POLICY)
const times = <T>(count: number, each: T): T[] => Array.from({ length: count }, () => each)

t.test('the same call with the same result, as often as the policy says', async t => {
  t.equal(found(['Go', ...times(4, call('read'))]), null)
  t.same(found(['Go', ...times(5, call('read'))]), { kind: 'repeat', names: ['read'], times: 5 })
  t.equal(found(['Go', ...times(4, call('read')), call('read', '{"at":2}')]), null, 'other arguments')
  t.equal(found(['Go', ...times(4, call('read')), call('read', '{"at":1}', 'new')]), null, 'another result')
  t.equal(found(['Go', ...times(4, call('read')), call('write')]), null, 'another tool')
  t.equal(
    found(['Go', ...times(4, call('read')), 'Go on', ...times(4, call('read'))]),
    null,
    'the user spoke',
  )
  t.equal(found(['Go', ...times(5, call('read')), call('other')]), null, 'it went on')
  t.equal(found(['Go', ...times(9, call('read', '{"at":1}', null))]), null, 'calls without results')
  t.equal(findLoop({ model: 'm', input: 'Go' }, POLICY), null)
})

t.test('arguments are compared as JSON values', async t => {
  const same = [
    '{"a":1,"b":[{"c":2,"d":3}]}',
    '{ "b": [ {"d":3, "c":2} ], "a":1 }',
    '{"b":[{"c":2,"d":3}],"a":1}',
  ]
  t.ok(found(['Go', ...[...same, ...same].map(args => call('read', args))]))
  const other = [...same, '{"a":1,"b":[{"c":3,"d":2}]}', ...same.slice(1)]
  t.equal(found(['Go', ...other.map(args => call('read', args))]), null)
  t.ok(found(['Go', ...times(5, call('read', 'no JSON'))]))
})

t.test('cycles of two and three calls', async t => {
  const two = [call('read'), call('write')]
  const three = [call('read'), call('write'), call('test')]
  t.equal(found(['Go', ...times(3, two).flat()]), null)
  t.same(found(['Go', ...times(4, two).flat()]), { kind: 'cycle', names: ['read', 'write'], times: 4 })
  t.equal(found(['Go', ...times(3, three).flat(), ...three.slice(0, 2)]), null)
  t.same(found(['Go', ...times(4, three).flat()]), {
    kind: 'cycle',
    names: ['read', 'write', 'test'],
    times: 4,
  })
  const growing = times(4, two).flat()
  growing[6] = call('read', '{"at":1}', 'more')
  t.equal(found(['Go', ...growing]), null, 'a result changed')
})

t.test('no conversation whose results all differ is a loop', async t => {
  const names = fc.array(fc.constantFrom('read', 'write', 'test'), { maxLength: 40 })
  fc.assert(
    fc.property(names, all => found(['Go', ...all.map((name, at) => call(name, '{}', `${at}`))]) === null),
    search(),
  )
  t.pass()
})
