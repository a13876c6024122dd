/** Colours for named things: the same thing has the same colour in every chart of this tab. */

/** Variables of the style, which colour-blind people can distinguish. */
const PALETTE = ['--c1', '--c2', '--c3', '--c4', '--c5', '--c6', '--c7', '--c8']
/** Further names share colours with others. */
const NAMES_MAX = 1_000
const colours = new Map()

/** The variable of a name, such as a model. The first names get different colours. */
export function colourOf(kind, name) {
  if (name === null) return '--c0'
  const key = `${kind} ${name}`
  let colour = colours.get(key)
  if (colour === undefined) {
    const usedCount = [...colours.keys()].filter(usedKey => usedKey.startsWith(`${kind} `)).length
    colour = PALETTE[usedCount % PALETTE.length]
    if (colours.size < NAMES_MAX) colours.set(key, colour)
  }
  return colour
}
