import t from 'tap'
import { actionOf, computerVersion, inputOf } from '../../../src/formats/anthropic-messages/computer.ts'

type Fields = Readonly<Record<string, unknown>>

t.test('actions of both APIs say the same', async t => {
  const pairs: readonly (readonly [input: Fields, action: Fields])[] = [
    [{ action: 'screenshot' }, { type: 'screenshot' }],
    [
      { action: 'left_click', coordinate: [3, 4] },
      { type: 'click', button: 'left', x: 3, y: 4 },
    ],
    [
      { action: 'right_click', coordinate: [3, 4], text: 'shift' },
      { type: 'click', button: 'right', x: 3, y: 4, keys: ['SHIFT'] },
    ],
    [
      { action: 'middle_click', coordinate: [0, 0] },
      { type: 'click', button: 'wheel', x: 0, y: 0 },
    ],
    [
      { action: 'double_click', coordinate: [1, 2] },
      { type: 'double_click', x: 1, y: 2 },
    ],
    [
      { action: 'mouse_move', coordinate: [1, 2] },
      { type: 'move', x: 1, y: 2 },
    ],
    [
      { action: 'left_click_drag', start_coordinate: [1, 2], coordinate: [3, 4] },
      {
        type: 'drag',
        path: [
          { x: 1, y: 2 },
          { x: 3, y: 4 },
        ],
      },
    ],
    [
      { action: 'type', text: 'Grüße\n' },
      { type: 'type', text: 'Grüße\n' },
    ],
    [
      { action: 'key', text: 'Return' },
      { type: 'keypress', keys: ['ENTER'] },
    ],
    [
      { action: 'key', text: 'ctrl+shift+s' },
      { type: 'keypress', keys: ['CTRL', 'SHIFT', 's'] },
    ],
    [
      { action: 'key', text: 'ctrl++' },
      { type: 'keypress', keys: ['CTRL', '+'] },
    ],
    [
      { action: 'key', text: 'F5' },
      { type: 'keypress', keys: ['F5'] },
    ],
    [
      { action: 'scroll', coordinate: [5, 6], scroll_direction: 'up', scroll_amount: 3 },
      { type: 'scroll', x: 5, y: 6, scroll_x: 0, scroll_y: -300 },
    ],
    [
      { action: 'scroll', coordinate: [5, 6], scroll_direction: 'right', scroll_amount: 1 },
      { type: 'scroll', x: 5, y: 6, scroll_x: 100, scroll_y: 0 },
    ],
    [
      { action: 'wait', duration: 2 },
      { type: 'wait', duration: 2 },
    ],
    [
      { action: 'triple_click', coordinate: [1, 2] },
      { type: 'triple_click', coordinate: [1, 2] },
    ],
    [
      { action: 'hold_key', text: 'a', duration: 1 },
      { type: 'hold_key', text: 'a', duration: 1 },
    ],
    [
      { action: 'zoom', region: [0, 0, 9, 9] },
      { type: 'zoom', region: [0, 0, 9, 9] },
    ],
  ]
  for (const [input, action] of pairs) {
    t.same(actionOf(input), action, JSON.stringify(input))
    t.same(inputOf(action), input, JSON.stringify(action))
  }
})

t.test('what a model should not write keeps its own words', async t => {
  for (const input of [
    {},
    { action: 1 },
    { action: 'left_click', coordinate: ['x', 2] },
    { action: 'scroll' },
  ])
    t.doesNotThrow(() => inputOf(actionOf(input)))
  t.same(actionOf({ action: 'left_click', coordinate: 'x' }), { type: 'left_click', coordinate: 'x' })
})

t.test('each model has the version of the tool that it knows', async t => {
  const older = [
    'claude-sonnet-4-20250514',
    'claude-opus-4-1-20250805',
    'claude-sonnet-4-5',
    'claude-3-7-sonnet-latest',
    'claude-haiku-4-5-20251001',
    'claude-opus-4-0',
    'claude-opus-4',
    'anthropic.claude-sonnet-4.5',
  ]
  const newer = [
    'claude-opus-4-5-20251101',
    'claude-opus-4-6',
    'claude-sonnet-4-6',
    'claude-opus-4-10',
    'claude-sonnet-5',
    'claude-fable-1',
  ]
  for (const model of older) t.equal(computerVersion(model).type, 'computer_20250124', model)
  for (const model of newer) t.equal(computerVersion(model).type, 'computer_20251124', model)
})
