import t from 'tap'
import { tierOf, usageOf } from '../../../src/formats/google-gemini/usage.ts'

type Row = readonly [
  name: string,
  metadata: Record<string, unknown>,
  input: number,
  output: number,
  reasoning: number,
]

const ROWS: readonly Row[] = [
  [
    'Gemini: everything beside each other',
    {
      promptTokenCount: 10,
      toolUsePromptTokenCount: 5,
      candidatesTokenCount: 3,
      thoughtsTokenCount: 2,
      totalTokenCount: 20,
    },
    15,
    5,
    2,
  ],
  [
    'candidates hold the thoughts',
    { promptTokenCount: 10, candidatesTokenCount: 7, thoughtsTokenCount: 5, totalTokenCount: 17 },
    10,
    7,
    5,
  ],
  [
    'the prompt holds the tool prompts',
    { promptTokenCount: 15, toolUsePromptTokenCount: 5, candidatesTokenCount: 3, totalTokenCount: 18 },
    15,
    3,
    0,
  ],
  [
    'both at once',
    {
      promptTokenCount: 15,
      toolUsePromptTokenCount: 5,
      candidatesTokenCount: 3,
      thoughtsTokenCount: 2,
      totalTokenCount: 18,
    },
    15,
    3,
    2,
  ],
  [
    'no candidates, the total tells them',
    { promptTokenCount: 10, thoughtsTokenCount: 2, totalTokenCount: 20 },
    10,
    10,
    2,
  ],
  ['no candidates at all', { promptTokenCount: 10, thoughtsTokenCount: 2, totalTokenCount: 12 }, 10, 2, 2],
  ['no total', { promptTokenCount: 10, candidatesTokenCount: 3, thoughtsTokenCount: 2 }, 10, 5, 2],
  [
    'a total that fits nothing',
    { promptTokenCount: 10, candidatesTokenCount: 3, thoughtsTokenCount: 2, totalTokenCount: 999 },
    10,
    5,
    2,
  ],
  ['digits as text', { promptTokenCount: '10', candidatesTokenCount: '3', totalTokenCount: '13' }, 10, 3, 0],
  [
    'junk',
    { promptTokenCount: -4, candidatesTokenCount: 'three', thoughtsTokenCount: null, totalTokenCount: 2.5 },
    0,
    2,
    0,
  ],
]

t.test('tokens by whoever counts them', async t => {
  for (const [name, metadata, inputTokens, outputTokens, reasoningTokens] of ROWS) {
    t.match(
      usageOf(metadata, 0),
      { inputTokens, outputTokens, reasoningTokens, cachedTokens: 0, cacheWriteTokens: 0 },
      name,
    )
  }
  t.match(usageOf({ promptTokenCount: 10, cachedContentTokenCount: 8 }, 3), {
    cachedTokens: 8,
    webSearchRequests: 3,
  })
  t.match(
    usageOf({ promptTokenCount: 10, cachedContentTokenCount: 80 }, 0),
    { cachedTokens: 10 },
    'never more than was read',
  )
  t.equal(usageOf({ trafficType: 'ON_DEMAND' }, 0), null)
  t.equal(usageOf({}, 0), null)
})

t.test('service tiers', async t => {
  t.equal(tierOf({ serviceTier: 'standard' }), 'default')
  t.equal(tierOf({ serviceTier: 'flex', trafficType: 'ON_DEMAND' }), 'flex')
  t.equal(tierOf({ trafficType: 'ON_DEMAND_FLEX' }), 'flex')
  t.equal(tierOf({ trafficType: 'ON_DEMAND_PRIORITY' }), 'priority')
  t.equal(tierOf({ trafficType: 'PROVISIONED_THROUGHPUT' }), null)
  t.equal(tierOf({ serviceTier: 7 }), null)
})
