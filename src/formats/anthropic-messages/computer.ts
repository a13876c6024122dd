/**
 * Computer use: translates between the `computer` tool of the Messages API and that of Responses. The client performs
 * the actions, and sends a screenshot after each call. Actions without a counterpart keep their own names. Pure.
 */
import { filled, type Json, listOrEmpty, record, recordOrEmpty, textOrEmpty } from '../../base/json.ts'

/** The name by which the model calls the tool. */
export const COMPUTER_NAME = 'computer'

export const COMPUTER_TYPES: ReadonlySet<string> = new Set(['computer_use_preview', 'computer'])

/** The default screen size, which the provider recommends. */
const DEFAULT_WIDTH = 1024
const DEFAULT_HEIGHT = 768

interface Version {
  readonly type: string
  /** The beta feature of the API that has this version. */
  readonly beta: string
}

const FIRST_VERSION: Version = { type: 'computer_20250124', beta: 'computer-use-2025-01-24' }
const LATEST_VERSION: Version = { type: 'computer_20251124', beta: 'computer-use-2025-11-24' }
/** Models with the first version: Claude 3.7, Opus 4 and 4.1, Sonnet 4 and 4.5, Haiku 4.5. */
const OLDER_MODELS =
  /3[.-]7|(?:sonnet|haiku)-4[.-]5|(?:opus|sonnet)-4(?:[.-][01](?!\d)|[-@](?:\d{8}|latest)|$)/

export function computerVersion(upstreamModel: string): Version {
  return OLDER_MODELS.test(upstreamModel) ? FIRST_VERSION : LATEST_VERSION
}

/** The tool without a version, which `withVersion` sets. Tools of clients of this API already have one. */
export function computerTool(tool: Json): Json {
  return {
    type: COMPUTER_NAME,
    name: COMPUTER_NAME,
    display_width_px: pixels(tool['display_width'], DEFAULT_WIDTH),
    display_height_px: pixels(tool['display_height'], DEFAULT_HEIGHT),
  }
}

/** The tools for a model, and the beta feature that they need; null: no tool is a computer without a version. */
export function withVersion(
  tools: readonly Json[],
  upstreamModel: string,
): { tools: readonly Json[]; beta: string | null } {
  if (!tools.some(isUnversioned)) return { tools, beta: null }
  const { type, beta } = computerVersion(upstreamModel)
  return { tools: tools.map(tool => (isUnversioned(tool) ? { ...tool, type } : tool)), beta }
}

function isUnversioned({ type, name }: Json): boolean {
  return name === COMPUTER_NAME && type === COMPUTER_NAME
}

function pixels(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback
}

// Keys have other names in the two APIs.

const KEY_NAMES: readonly (readonly [anthropicName: string, responsesName: string])[] = [
  ['Return', 'ENTER'],
  ['Escape', 'ESC'],
  ['BackSpace', 'BACKSPACE'],
  ['Page_Up', 'PAGEUP'],
  ['Page_Down', 'PAGEDOWN'],
  ['Left', 'LEFT'],
  ['Right', 'RIGHT'],
  ['Up', 'UP'],
  ['Down', 'DOWN'],
  ['space', 'SPACE'],
  ['super', 'CMD'],
]
const RESPONSES_KEYS: ReadonlyMap<string, string> = new Map(KEY_NAMES)
const ANTHROPIC_KEYS: ReadonlyMap<string, string> = new Map(
  KEY_NAMES.map(([anthropicName, responsesName]) => [responsesName, anthropicName]),
)

function keysOf(text: string): readonly string[] {
  return text
    .split(/(?<=[^+])\+/)
    .map(key => RESPONSES_KEYS.get(key) ?? (key.length === 1 ? key : key.toUpperCase()))
}

function keyText(keys: unknown): string {
  return listOrEmpty(keys)
    .map(textOrEmpty)
    .map(key => ANTHROPIC_KEYS.get(key) ?? (MODIFIERS.has(key) ? key.toLowerCase() : titleCase(key)))
    .join('+')
}

const MODIFIERS: ReadonlySet<string> = new Set(['CTRL', 'ALT', 'SHIFT', 'META'])

function titleCase(key: string): string {
  return /^[A-Z]{2,}$/.test(key) ? `${key.charAt(0)}${key.slice(1).toLowerCase()}` : key
}

const BUTTONS: readonly (readonly [action: string, button: string])[] = [
  ['left_click', 'left'],
  ['right_click', 'right'],
  ['middle_click', 'wheel'],
]
const BUTTON_OF: ReadonlyMap<unknown, string> = new Map(BUTTONS)
const CLICK_OF: ReadonlyMap<unknown, string> = new Map(BUTTONS.map(([action, button]) => [button, action]))
/** Pixels per notch of a mouse wheel. */
const NOTCH_PIXELS = 100

/** The action of a call. `input`: the arguments that the model wrote. */
export function actionOf(input: Json): Json {
  const { action, coordinate, text, ...otherFields } = input
  const point = pointOf(coordinate)
  const heldKeys = filled(text)
  const withKeys = heldKeys === null ? {} : { keys: keysOf(heldKeys) }
  const button = BUTTON_OF.get(action)
  if (button !== undefined && point !== null) return { type: 'click', button, ...point, ...withKeys }
  switch (action) {
    case 'screenshot':
      return { type: 'screenshot' }
    case 'double_click':
      if (point !== null) return { type: 'double_click', ...point, ...withKeys }
      break
    case 'mouse_move':
      if (point !== null) return { type: 'move', ...point }
      break
    case 'left_click_drag': {
      const start = pointOf(otherFields['start_coordinate'])
      if (point !== null && start !== null) return { type: 'drag', path: [start, point] }
      break
    }
    case 'type':
      return { type: 'type', text: textOrEmpty(text) }
    case 'key':
      return { type: 'keypress', keys: keysOf(textOrEmpty(text)) }
    case 'scroll':
      if (point !== null) return { type: 'scroll', ...point, ...wheelOf(otherFields), ...withKeys }
      break
    case 'wait':
      return { type: 'wait', ...otherFields }
  }
  const { action: _, ...fields } = input
  return { type: textOrEmpty(action), ...fields }
}

function wheelOf({ scroll_direction: direction, scroll_amount: amount }: Json): Json {
  const pixels = NOTCH_PIXELS * (typeof amount === 'number' ? amount : 1)
  return {
    scroll_x: direction === 'right' ? pixels : direction === 'left' ? -pixels : 0,
    scroll_y: direction === 'down' ? pixels : direction === 'up' ? -pixels : 0,
  }
}

function pointOf(value: unknown): { readonly x: number; readonly y: number } | null {
  const [x, y] = listOrEmpty(value)
  return typeof x === 'number' && typeof y === 'number' ? { x, y } : null
}

/** The arguments of a call with this action: the inverse of `actionOf`. */
export function inputOf(action: Json): Json {
  const { type, ...fields } = action
  const coordinate = [fields['x'], fields['y']]
  const withKeys = listOrEmpty(fields['keys']).length === 0 ? {} : { text: keyText(fields['keys']) }
  switch (type) {
    case 'click': {
      const click = CLICK_OF.get(fields['button'])
      return click === undefined
        ? { action: 'left_click', coordinate }
        : { action: click, coordinate, ...withKeys }
    }
    case 'double_click':
      return { action: 'double_click', coordinate, ...withKeys }
    case 'move':
      return { action: 'mouse_move', coordinate }
    case 'drag': {
      const path = listOrEmpty(fields['path']).map(recordOrEmpty)
      const coordinates = (point: Json | undefined): unknown[] => [point?.['x'], point?.['y']]
      return {
        action: 'left_click_drag',
        start_coordinate: coordinates(path[0]),
        coordinate: coordinates(path.at(-1)),
      }
    }
    case 'type':
      return { action: 'type', text: textOrEmpty(fields['text']) }
    case 'keypress':
      return { action: 'key', text: keyText(fields['keys']) }
    case 'scroll':
      return { action: 'scroll', coordinate, ...directionOf(fields), ...withKeys }
    case 'wait':
      return { action: 'wait', duration: 1, ...fields }
    default:
      return { action: textOrEmpty(type), ...fields }
  }
}

function directionOf(action: Json): Json {
  const deltaX = Number(action['scroll_x'] ?? 0)
  const deltaY = Number(action['scroll_y'] ?? 0)
  const isDown = Math.abs(deltaY) >= Math.abs(deltaX)
  const direction = isDown ? (deltaY < 0 ? 'up' : 'down') : deltaX < 0 ? 'left' : 'right'
  const amount = Math.max(1, Math.round(Math.abs(isDown ? deltaY : deltaX) / NOTCH_PIXELS))
  return { scroll_direction: direction, scroll_amount: amount }
}

/** The actions of a replayed item: one, or a list in the newer spelling. */
export function actionsIn(item: Json): readonly Json[] {
  const actions = listOrEmpty(item['actions']).map(recordOrEmpty)
  const action = record(item['action'])
  return actions.length > 0 ? actions : action === null ? [{ type: 'screenshot' }] : [action]
}
