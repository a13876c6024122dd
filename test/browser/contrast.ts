/** Contrast of text on a page, by the formula of WCAG 1.4.3. */

const CONTRAST_MIN = 4.5

/** Texts whose colour is too close to what is behind them, by the formula of WCAG. */
export const PALE = `(least => {
  const parts = text => text.match(/[\\d.]+/g).map(Number)
  const light = text => {
    const [r, g, b] = parts(text).map(each => each / 255).map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const behind = element => {
    for (; element !== null; element = element.parentElement) {
      const { backgroundColor } = getComputedStyle(element)
      if (parts(backgroundColor)[3] !== 0) return backgroundColor
    }
    return getComputedStyle(document.documentElement).colorScheme === 'dark' ? 'rgb(18,18,18)' : 'rgb(255,255,255)'
  }
  const pale = new Map()
  for (const element of document.body.querySelectorAll('*')) {
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim() !== '')) continue
    const colors = [getComputedStyle(element).color, behind(element)]
    const [low, high] = colors.map(light).sort((a, b) => a - b)
    if ((high + 0.05) / (low + 0.05) < least) pale.set(colors.join(' on '), element.textContent.slice(0, 40))
  }
  return [...pale].map(each => each.join(': '))
})(${CONTRAST_MIN})`
