/**
 * A user with only a keyboard: moves to a control with Tab, operates it with keys, and checks where the focus is. Waits
 * for states, never for time.
 */
import type { Locator, Page } from 'playwright-core'

/** More stops than any view has. */
const STOPS_MAX = 1_500
/** Changes of direction after which a control cannot be reached: Tab goes past it. */
const TURNS_MAX = 6

/** A function of the page: its element is what the locator leads to. */
const inPage = (body: string) => new Function('element', body) as (element: unknown) => string

const WHERE = inPage(`
  const active = document.activeElement
  if (active === element) return 'here'
  if (active === null || active === document.body) return 'after'
  return active.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING ? 'after' : 'before'
`)
/** Names what is wrong with the focus of an element that has it. */
const UNSEEN = inPage(`
  const style = getComputedStyle(element)
  const { left, right, top, bottom } = element.getBoundingClientRect()
  const middle = (from, to, most) => Math.min(Math.max((Math.max(from, 0) + Math.min(to, most)) / 2, 0), most - 1)
  const above = document.elementFromPoint(middle(left, right, innerWidth), middle(top, bottom, innerHeight))
  const faults = []
  if (!element.matches(':focus-visible')) faults.push('not marked as focused')
  if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) === 0) faults.push('without an outline')
  if (right <= 0 || bottom <= 0 || left >= innerWidth || top >= innerHeight) faults.push('outside of the window')
  else if (above === null || !(element.contains(above) || above.contains(element))) faults.push('covered')
  return faults.join(', ')
`)
const NAME = `(element => element === null || element === document.body ? 'the page'
  : element.tagName.toLowerCase() + ' ' + (element.getAttribute('aria-label') ?? element.textContent).trim().slice(0, 60)
)(document.activeElement)`
/** Everything that Tab should stop at. */
const STOPS = `(() => {
  const open = document.querySelector('dialog[open]') ?? document
  return [...open.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
    .filter(element => !element.disabled && element.checkVisibility())
})()`

export class Keyboard {
  readonly #page: Page

  constructor(page: Page) {
    this.#page = page
  }

  /** Goes to the control by Tab or Shift+Tab. @throws if it is not reached, or nobody can see that it has the focus */
  async reach(target: Locator): Promise<void> {
    await target.waitFor()
    let turns = 0
    let before = ''
    for (let stops = 0; stops < STOPS_MAX && turns < TURNS_MAX; stops++) {
      const where = await target.evaluate(WHERE)
      if (where === 'here') {
        const unseen = await target.evaluate(UNSEEN)
        if (unseen !== '') throw new Error(`${target} has the focus, ${unseen}`)
        return
      }
      if (before !== '' && where !== before) turns++
      before = where
      await this.#page.keyboard.press(where === 'before' ? 'Shift+Tab' : 'Tab')
    }
    throw new Error(`Tab does not lead to ${target}; the focus is on ${await this.focused()}`)
  }

  async press(...keys: readonly string[]): Promise<void> {
    for (const key of keys) await this.#page.keyboard.press(key)
  }

  /** Presses a button, or follows a link. */
  async use(target: Locator, key = 'Enter'): Promise<void> {
    await this.reach(target)
    await this.press(key)
  }

  /** Puts the text in place of what stands in the field. */
  async type(field: Locator, text: string): Promise<void> {
    await this.reach(field)
    await this.press('Control+A', 'Delete')
    await this.#page.keyboard.type(text)
  }

  /** Goes through the options of a closed list by arrows. */
  async choose(list: Locator, value: string): Promise<void> {
    await this.reach(list)
    await this.press('Home')
    const options = await list.locator('option').count()
    for (let at = 0; (await list.inputValue()) !== value; at++) {
      if (at === options) throw new Error(`${value} is no option of ${list}`)
      await this.press('ArrowDown')
    }
  }

  /** Waits until the control has the focus. */
  async isAt(target: Locator): Promise<void> {
    await target.and(this.#page.locator(':focus')).waitFor()
  }

  /** The element that has the focus, for messages. */
  async focused(): Promise<string> {
    return await this.#page.evaluate<string>(NAME)
  }

  /** Goes once around by Tab. @returns what cannot be reached; @throws if there is no way out */
  async missed(): Promise<string[]> {
    await this.#page.evaluate(`(() => {
      window.reached = new Set([document.activeElement])
      window.first = document.activeElement
      addEventListener('focusin', event => window.reached.add(event.target))
    })()`)
    for (let stops = 0; stops < STOPS_MAX; stops++) {
      await this.press('Tab')
      if (await this.#page.evaluate<boolean>('document.activeElement === window.first')) {
        return await this.#page.evaluate<string[]>(
          `${STOPS}.filter(element => !window.reached.has(element)).map(element => element.outerHTML.slice(0, 120))`,
        )
      }
    }
    throw new Error(`Tab does not come around: the focus is on ${await this.focused()}`)
  }
}
