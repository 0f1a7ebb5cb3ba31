// The scripts of the explore page.
import "./explore.js";
import "./brush.js";
import "./choose.js";
import "./panel.js";
import "./memory.js";
import "./ask.js";
