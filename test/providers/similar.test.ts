import t from 'tap'
import { createSimilar } from '../../src/providers/similar.ts'

const similar = createSimilar([
  'openai/gpt-5-mini',
  'openai/gpt-5',
  'azure/gpt-5-mini',
  'sim/echo',
  'anthropic/claude-sonnet-4',
])

t.test('the nearest ids come first, and nothing is guessed from afar', t => {
  const cases: readonly (readonly [asked: string, expected: readonly string[]])[] = [
    ['sim/ecoh', ['sim/echo']],
    ['SIM/Echo', ['sim/echo']],
    ['openai/gpt5-mini', ['openai/gpt-5-mini']],
    ['gpt-5-mini', ['openai/gpt-5-mini', 'azure/gpt-5-mini']],
    ['claude-sonnet-4.', ['anthropic/claude-sonnet-4']],
    ['anthropic/claude-sonet-4', ['anthropic/claude-sonnet-4']],
    ['mistral/large', []],
    ['', []],
    ['x', []],
    ['openai/'.repeat(100), []],
    ['__proto__', []],
  ]
  for (const [asked, expected] of cases) t.same(similar(asked), expected, asked)
  t.equal(similar('sim/ecoh'), similar('sim/ecoh'), 'a stale id is looked for once')
  t.end()
})
