import t from 'tap'
import { accepted, body, refused } from './bodies.ts'

const preferring = (provider: unknown) => body({ provider })

t.test('routing preferences', t => {
  accepted(t, [
    ['none', preferring({})],
    ['sorting by a word', preferring({ sort: 'exacto' })],
    [
      'all null',
      preferring({
        order: null,
        allow_fallbacks: null,
        only: null,
        ignore: null,
        sort: null,
        max_price: null,
        zdr: null,
      }),
    ],
    ['a price of nothing', preferring({ max_price: { prompt: 0, completion: '0.00' } })],
    ['a latency by percentiles', preferring({ preferred_max_latency: { p50: 1, p75: null, p99: 9.5 } })],
  ])
  refused(t, [
    ['an unknown preference', preferring({ vibes: 'good' }), 'provider.vibes', /not a known field/],
    ['preferences as text', preferring('acme'), 'provider', /an object or null/],
    ['an order as text', preferring({ order: 'acme' }), 'provider.order'],
    ['an order without an end', preferring({ order: Array(257).fill('acme') }), 'provider.order', /256/],
    ['only without an end', preferring({ only: Array(257).fill('acme') }), 'provider.only', /256/],
    ['ignore without an end', preferring({ ignore: Array(257).fill('acme') }), 'provider.ignore', /256/],
    ['a name without an end', preferring({ only: ['a'.repeat(129)] }), 'provider.only[0]', /128/],
    [
      'quantizations without an end',
      preferring({ quantizations: Array(257).fill('fp8') }),
      'provider.quantizations',
      /256/,
    ],
    ['an order of numbers', preferring({ order: ['acme', 1] }), 'provider.order[1]'],
    ['only as an object', preferring({ only: {} }), 'provider.only'],
    ['ignore of nulls', preferring({ ignore: [null] }), 'provider.ignore[0]'],
    ['fallbacks as text', preferring({ allow_fallbacks: 'no' }), 'provider.allow_fallbacks'],
    ['required parameters as a list', preferring({ require_parameters: [] }), 'provider.require_parameters'],
    [
      'data collection of another kind',
      preferring({ data_collection: 'ask' }),
      'provider.data_collection',
      /one of allow, deny/,
    ],
    ['zdr as text', preferring({ zdr: 'true' }), 'provider.zdr'],
    [
      'distillable text as a number',
      preferring({ enforce_distillable_text: 1 }),
      'provider.enforce_distillable_text',
    ],
    [
      'a quantization of another kind',
      preferring({ quantizations: ['fp8', 'fp7'] }),
      'provider.quantizations[1]',
    ],
    [
      'sorting by another word',
      preferring({ sort: 'luck' }),
      'provider.sort',
      /price, throughput, latency, exacto/,
    ],
    ['sorting by another word in an object', preferring({ sort: { by: 'luck' } }), 'provider.sort.by'],
    [
      'a partition of another kind',
      preferring({ sort: { by: 'price', partition: 'all' } }),
      'provider.sort.partition',
    ],
    ['a price as an expression', preferring({ max_price: { prompt: '1e3' } }), 'provider.max_price.prompt'],
    ['a negative price', preferring({ max_price: { completion: -1 } }), 'provider.max_price.completion'],
    ['a price as a list', preferring({ max_price: [1] }), 'provider.max_price'],
    ['a negative latency', preferring({ preferred_max_latency: -1 }), 'provider.preferred_max_latency'],
    [
      'a latency as text',
      preferring({ preferred_max_latency: 'fast' }),
      'provider.preferred_max_latency',
      /a number of at least 0 or an object or null/,
    ],
    [
      'a percentile as text',
      preferring({ preferred_min_throughput: { p90: 'x' } }),
      'provider.preferred_min_throughput.p90',
    ],
  ])
  t.end()
})
