import t from 'tap'
import { accepted, input, refused } from './bodies.ts'

t.test('every item of a tool of ours is taken in both spellings', t => {
  const names = [
    'web_search',
    'web_fetch',
    'image_generation',
    'fusion',
    'advisor',
    'subagent',
    'bash',
    'shell',
    'apply_patch',
    'files',
    'experimental__search_models',
    'tool_search',
    'code_interpreter',
    'file_search',
    'browser_use',
    'text_editor',
    'memory',
    'mcp',
  ]
  for (const prefix of ['gateway', 'openrouter']) {
    accepted(t, [
      ...names.map(
        name =>
          [
            `${prefix}:${name}`,
            input({ type: `${prefix}:${name}`, id: 'st_1', status: 'completed' }),
          ] as const,
      ),
      [
        `${prefix}:datetime`,
        input({ type: `${prefix}:datetime`, datetime: '2026-01-01T00:00:00.000Z', timezone: 'UTC' }),
      ],
    ])
  }
  refused(t, [
    [
      'a tool of ours that does not exist',
      input({ type: 'gateway:crystal_ball' }),
      'input[0].type',
      /must name a known input item/,
    ],
    [
      'a date without a zone',
      input({ type: 'gateway:datetime', datetime: 'x' }),
      'input[0].timezone',
      /is required/,
    ],
    [
      'a status that this tool has not',
      input({ type: 'gateway:web_search', status: 'failed' }),
      'input[0].status',
    ],
    [
      'an action that memory has not',
      input({ type: 'openrouter:memory', action: 'forget' }),
      'input[0].action',
    ],
    [
      'a command that the editor has not',
      input({ type: 'gateway:text_editor', command: 'undo' }),
      'input[0].command',
    ],
    ['an exit code as text', input({ type: 'gateway:bash', exitCode: '0' }), 'input[0].exitCode'],
    [
      'a fusion answer without a model',
      input({ type: 'gateway:fusion', responses: [{ content: 'x' }] }),
      'input[0].responses[0].model',
    ],
  ])
  t.end()
})
