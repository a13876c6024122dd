/** How errors name a field: `input[2].content[0].image_url`. Pure. */

/** Keys that are safe to repeat: a client's own key may be anything else, of any length, even a secret. */
const SPEAKABLE = /^(?:[A-Za-z0-9_-]{1,19}|[A-Za-z_-]{20,64})$/

/** The path of a field; a key that is no plain word is not repeated. */
export function fieldPath(parent: string, key: string): string {
  const name = SPEAKABLE.test(key) ? key : '*'
  return parent === '' ? name : `${parent}.${name}`
}

export function elementPath(parent: string, index: number): string {
  return `${parent}[${index}]`
}
