import t from 'tap'
import { accepted, body, plugins, refused } from './bodies.ts'

const alignment = { id: 'alignment', rules: ['Be kind.'] }
const off = { enabled: false }

t.test('settings of plugins that are well-formed', t => {
  accepted(t, [
    [
      'a router',
      plugins({
        id: 'auto-router',
        ...off,
        allowed_models: ['acme/*'],
        excluded_models: ['x'.repeat(1024)],
        cost_tier: 'xhigh',
        cost_quality_tradeoff: 10,
        pin_model: true,
      }),
    ],
    ['compression', plugins({ id: 'context-compression', ...off, engine: 'middle-out' })],
    ['a parser', plugins({ id: 'file-parser', ...off, pdf: { engine: 'pdf-text' } })],
    [
      'fusion',
      plugins({
        id: 'fusion',
        ...off,
        model: 'a/b',
        analysis_models: Array.from({ length: 8 }, () => 'a/b'),
        max_tool_calls: 16,
        preset: 'general-fast',
        tools: [],
      }),
    ],
    [
      'a pareto router',
      plugins({
        id: 'pareto-router',
        ...off,
        min_coding_score: 1,
        max_price: 0,
        price_source: 'weighted_avg',
      }),
    ],
    ['a switchyard router', plugins({ id: 'switchyard-router', ...off, algorithm: 'passthrough' })],
    ['an open plugin with a field yet to come', plugins({ id: 'web', ...off, depth: 3 })],
    ['several plugins turned off', plugins({ id: 'web', ...off }, { id: 'fusion', ...off })],
  ])
  t.end()
})

t.test('settings of plugins that are refused', t => {
  const aligned = (fields: object) => plugins({ ...alignment, ...fields })
  refused(t, [
    ['plugins as an object', body({ plugins: {} }), 'plugins'],
    ['a plugin as text', plugins('web'), 'plugins[0]', /must be an object \(plugin\)/],
    ['a plugin without an id', plugins({}), 'plugins[0].id', /is required/],
    ['a plugin of no kind', plugins({ id: 'magic' }), 'plugins[0].id', /must name a known plugin: alignment/],
    ['a plugin named like an inherited field', plugins({ id: 'hasOwnProperty' }), 'plugins[0].id'],
    ['a second plugin of no kind', plugins({ id: 'web', ...off }, { id: 'magic' }), 'plugins[1].id'],
    ['alignment without rules', plugins({ id: 'alignment' }), 'plugins[0].rules', /is required/],
    ['alignment of no rules', aligned({ rules: [] }), 'plugins[0].rules', /at least 1/],
    [
      'alignment of 129 rules',
      aligned({ rules: Array.from({ length: 129 }, () => 'r') }),
      'plugins[0].rules',
      /at most 128/,
    ],
    ['an empty rule', aligned({ rules: ['ok', ''] }), 'plugins[0].rules[1]', /1 to 200 characters/],
    ['a rule of 201 characters', aligned({ rules: ['r'.repeat(201)] }), 'plugins[0].rules[0]'],
    [
      'a rule of two lines',
      aligned({ rules: ['a\nb'] }),
      'plugins[0].rules[0]',
      /must not contain line breaks/,
    ],
    ['a rule with a carriage return', aligned({ rules: ['a\rb'] }), 'plugins[0].rules[0]'],
    ['a rule with a line separator', aligned({ rules: ['a\u2028b'] }), 'plugins[0].rules[0]'],
    ['a rule that is a number', aligned({ rules: [1] }), 'plugins[0].rules[0]'],
    [
      'an alignment mode of another kind',
      aligned({ mode: 'block' }),
      'plugins[0].mode',
      /one of enforce, audit/,
    ],
    ['instruct as text', aligned({ instruct: 'yes' }), 'plugins[0].instruct'],
    ['four retries', aligned({ max_retries: 4 }), 'plugins[0].max_retries', /from 0 to 3/],
    ['half a retry', aligned({ max_retries: 0.5 }), 'plugins[0].max_retries'],
    ['a threshold of zero', aligned({ threshold: 0 }), 'plugins[0].threshold', /above 0 and at most 1/],
    ['a threshold above one', aligned({ threshold: 1.01 }), 'plugins[0].threshold'],
    ['an unknown alignment setting', aligned({ enabled: false }), 'plugins[0].enabled', /not a known field/],
    [
      'an unknown jev setting',
      plugins({ id: 'jev-router', enabled: false }),
      'plugins[0].enabled',
      /not a known field/,
    ],
    [
      'a jev tier of another kind',
      plugins({ id: 'jev-router', cost_tier: 'max' }),
      'plugins[0].cost_tier',
      /low, medium, high/,
    ],
    [
      'a jev list that is too long',
      plugins({ id: 'jev-router', models: Array.from({ length: 1025 }, () => 'a') }),
      'plugins[0].models',
    ],
    [
      '1025 patterns',
      plugins({ id: 'auto-router', allowed_models: Array.from({ length: 1025 }, () => 'a') }),
      'plugins[0].allowed_models',
      /at most 1024/,
    ],
    [
      'a pattern of 1025 characters',
      plugins({ id: 'auto-beta-router', excluded_models: ['x'.repeat(1025)] }),
      'plugins[0].excluded_models[0]',
    ],
    [
      'a cost tier of another kind',
      plugins({ id: 'auto-router', cost_tier: 'free' }),
      'plugins[0].cost_tier',
    ],
    [
      'a tradeoff of 11',
      plugins({ id: 'auto-router', cost_quality_tradeoff: 11 }),
      'plugins[0].cost_quality_tradeoff',
      /from 0 to 10/,
    ],
    [
      'a tradeoff with a fraction',
      plugins({ id: 'auto-beta-router', cost_quality_tradeoff: 1.5 }),
      'plugins[0].cost_quality_tradeoff',
    ],
    ['a pin as text', plugins({ id: 'auto-router', pin_model: 'yes' }), 'plugins[0].pin_model'],
    ['enabled as text', plugins({ id: 'web', enabled: 'false' }), 'plugins[0].enabled'],
    [
      'a compression engine of another kind',
      plugins({ id: 'context-compression', engine: 'zip' }),
      'plugins[0].engine',
      /middle-out/,
    ],
    [
      'a PDF engine of another kind',
      plugins({ id: 'file-parser', pdf: { engine: 'ocr' } }),
      'plugins[0].pdf.engine',
    ],
    ['a panel of none', plugins({ id: 'fusion', analysis_models: [] }), 'plugins[0].analysis_models'],
    [
      'a panel of nine',
      plugins({ id: 'fusion', analysis_models: Array.from({ length: 9 }, () => 'a/b') }),
      'plugins[0].analysis_models',
      /at most 8/,
    ],
    [
      '17 fusion steps',
      plugins({ id: 'fusion', max_tool_calls: 17 }),
      'plugins[0].max_tool_calls',
      /from 1 to 16/,
    ],
    ['a fusion preset of another kind', plugins({ id: 'fusion', preset: 'best' }), 'plugins[0].preset'],
    [
      'nine fusion tools',
      plugins({ id: 'fusion', tools: Array.from({ length: 9 }, () => ({ type: 'web' })) }),
      'plugins[0].tools',
      /at most 8/,
    ],
    ['a fusion tool without a type', plugins({ id: 'fusion', tools: [{}] }), 'plugins[0].tools[0].type'],
    [
      'a coding score above one',
      plugins({ id: 'pareto-router', min_coding_score: 2 }),
      'plugins[0].min_coding_score',
    ],
    ['a negative price', plugins({ id: 'pareto-router', max_price: -1 }), 'plugins[0].max_price'],
    [
      'a switchyard algorithm of another kind',
      plugins({ id: 'switchyard-router', algorithm: 'best' }),
      'plugins[0].algorithm',
    ],
    ['a web engine of another kind', plugins({ id: 'web', engine: 'auto' }), 'plugins[0].engine'],
    ['26 web results', plugins({ id: 'web', max_results: 26 }), 'plugins[0].max_results'],
    [
      'fetched domains as text',
      plugins({ id: 'web-fetch', allowed_domains: 'a.com' }),
      'plugins[0].allowed_domains',
    ],
  ])
  t.end()
})
