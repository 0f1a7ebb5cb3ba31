// The scripts of every page but theme.js, which runs before a page is drawn.
import "./swap.js";
import "./keys.js";
